"""Feature maps as users write them, for tests: one with a custom kernel, one with random
vectors."""

from typing import Unpack

import torch
from torch import Tensor, nn

import attention
from attention.features import MapOptions, PositiveFeatures


class Taylor(attention.FeatureMap):
    """1 + x.y + (x.y)^2 / 2, exactly: nothing is random, and there is no buffer."""

    own_kernel = True

    def __init__(self, dim: int, num_features: int = 1) -> None:
        super().__init__(dim, num_features)

    @property
    def output_dim(self) -> int:
        return 1 + self.dim + self.dim**2

    def queries(self, x: Tensor) -> Tensor:
        pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2) / 2**0.5
        return torch.cat([torch.ones_like(x[..., :1]), x, pairs], -1)


class Tempered(PositiveFeatures):
    """exp(x.y / temperature), by positive features."""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        temperature: float = 1.0,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        self.temperature = temperature

    def queries(self, x: Tensor) -> Tensor:
        return super().queries(x / self.temperature**0.5)


class Cosines(attention.FeatureMap):
    """Signed, unsymmetric, with a learned gain, fitted length and vectors of each head's own."""

    signed = True
    own_kernel = True
    omega: Tensor
    length: Tensor

    def __init__(
        self, dim: int, num_features: int, *, seed: int = 0, heads: int | None = None, shift=0.0
    ) -> None:
        super().__init__(dim, num_features, heads=heads)
        self.shift = shift
        shape = (num_features, dim) if heads is None else (heads, num_features, dim)
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("omega", torch.randn(shape, generator=generator))
        self.register_buffer("length", torch.ones(()))
        self.gain = nn.Parameter(torch.ones(num_features))

    @property
    def output_dim(self) -> int:
        return self.num_features

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries", x, self.omega) / self.length
        return self.gain * (x @ self.omega.mT + self.shift).cos()

    def keys(self, y: Tensor) -> Tensor:
        y = self.prepare("keys", y, self.omega) / self.length
        return (y @ self.omega.mT - self.shift).cos() + 0.5

    def fit(self, x: Tensor, y: Tensor) -> "Cosines":
        self.length.copy_(x.norm(dim=-1).mean())
        return self

    def redraw(self, generator: torch.Generator) -> None:
        self.omega.copy_(torch.randn(self.omega.shape, generator=generator))


def positive_of_seed_5(dim: int, num_features: int, heads: int | None = None) -> PositiveFeatures:
    """A function that makes a map, of fewer settings than ours."""
    return PositiveFeatures(dim, num_features, seed=5, heads=heads)


def no_map(dim: int, num_features: int) -> nn.Module:
    return nn.Linear(dim, num_features)


number = 3
an_object = Taylor(4)
