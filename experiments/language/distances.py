"""Distances between two distributions over the words, in the order of their numbers.

Both are of differences between cumulative distributions: their sum is the 1d-Wasserstein distance,
in words, and their largest the Kolmogorov-Smirnov distance (Hybrid Random Features, section 4.2).
So they depend on the order.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["distances", "shares"]


def shares(weights: Tensor) -> Tensor:
    """(n, words), negatives as 0, over the sum of each row; a row with none above 0 is uniform."""
    positive = weights.clamp(min=0)
    total = positive.sum(-1, keepdim=True)
    return torch.where(total > 0, positive, 1.0) / torch.where(total > 0, total, weights.shape[-1])


def distances(exact: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Two distributions (n, words) -> 1d-Wasserstein and Kolmogorov-Smirnov distances (n,)."""
    away = (exact.double() - other.double()).cumsum(-1).abs()
    return away.sum(-1), away.amax(-1)
