"""Which examples a step learns from: they follow from the seed and the step alone."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["batch_of"]


def batch_of(step: int, examples: int, batch: int, seed: int) -> Tensor:
    """Indices (batch,) of a step from 1 on: each epoch is a new order of all, whose rest that
    fills no batch is left out; where there are fewer examples than a batch, all."""
    batch = min(batch, examples)
    epoch, place = divmod(step - 1, examples // batch)
    return _order(epoch, examples, seed)[place * batch : (place + 1) * batch]


@lru_cache(maxsize=2)
def _order(epoch: int, examples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(examples, generator=generator)
