"""Seeded draws of the couplings, and how far their means are from what is expected."""

import math

import torch
from torch import Tensor

import attention

FAST = ("fast_simplex", "hadamard")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(name: str, m: int, d: int, seed: int = 0, heads: int | None = None) -> Tensor:
    return attention.projection(name, m, d, seeded(seed), torch.float64, heads=heads)


def blocks(name: str, count: int, d: int, seed: int) -> Tensor:
    """(count, d, d) independent blocks; of Halton, whose points are all coupled, 800 draws."""
    if name == "halton":
        return draw(name, d, d, seed, heads=800)
    return draw(name, count * d, d, seed).reshape(count, d, d)


def z_score(samples: Tensor, expected: Tensor | float) -> Tensor:
    """Of means over the first dimension; 0 where samples are constant and as expected."""
    return (samples.mean(0) - expected) / (samples.std(0) / math.sqrt(len(samples)) + 1e-12)


def cosines(block: Tensor) -> Tensor:
    """All pairs i != j, (..., b, d) -> (..., b (b - 1))."""
    units = block / block.norm(dim=-1, keepdim=True)
    return (units @ units.mT)[..., ~torch.eye(block.shape[-2], dtype=torch.bool)]
