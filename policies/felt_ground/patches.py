"""Keys of what a patch of an image looks like."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from attention.components import component

_CHANNELS = (16, 32)


class PatchKeys(nn.Module):
    """A small convolution: patches (..., 3, height, width) of colours from 0 to 1, at least 9
    pixels a side, -> unit keys (..., dim).

    The mean and the standard deviation of its outputs over the patch make the key, so that it does
    not depend on where a texture is cut.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        first, second = _CHANNELS
        self.layers = nn.Sequential(
            nn.Conv2d(3, first, 5, stride=1), nn.ReLU(), nn.Conv2d(first, second, 3, stride=2)
        )
        self.to_key = nn.Linear(2 * second, dim)

    def forward(self, patches: Tensor) -> Tensor:
        with component("tokens"):
            seen = self.layers(2 * patches.flatten(0, -4) - 1).flatten(-2)
            facts = torch.cat((seen.mean(-1), seen.var(-1).add(1e-6).sqrt()), -1)
            return normalize(self.to_key(facts), dim=-1).unflatten(0, patches.shape[:-3])
