"""Places remembered in the state of linear attention."""

import math
from typing import Any

import torch
from scipy.special import ive
from torch import Tensor, nn

__all__ = ["LinearPlaces"]


class LinearPlaces(nn.Module):
    def __init__(self, circle_m: float, kappa: float, forgetting: float, num: int) -> None:
        super().__init__()
        self.circle_m, self.forgetting = circle_m, forgetting
        w = torch.tensor([ive(n, kappa) * (1 if n == 0 else 2) for n in range(num + 1)])
        self.register_buffer("w", (w / w.sum()).sqrt().float(), persistent=False)
        self.register_buffer("n", torch.arange(1, num + 1.0), persistent=False)

    def phi(self, at_m: Tensor) -> Tensor:
        a = (at_m * (2 * math.pi / self.circle_m)).unsqueeze(-1) * self.n
        one = self.w[0].expand(*at_m.shape, 1)
        return torch.cat((one, self.w[1:] * a.cos(), self.w[1:] * a.sin()), -1)

    def start(self, batch: int, like: Tensor) -> Any:
        return (like.new_zeros(batch, 2 * len(self.n) + 1, 2),)

    def cleared(self, state: Any, where: Tensor) -> Any:
        return (state[0].masked_fill(where[:, None, None], 0),)

    def write(self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor) -> Any:
        v = torch.stack((weights * holes, weights), -1)
        return (self.forgetting * state[0] + self.phi(at_m).mT @ v,)

    def read(self, state: Any, at_m: Tensor) -> Tensor:
        num, den = (self.phi(at_m) @ state[0]).unbind(-1)
        floor = 1e-3 * den.abs().amax(-1, keepdim=True).clamp_min(1e-9)
        den = torch.where(den.abs() < floor, floor, den)
        return (num / den).clamp(-1, 2)
