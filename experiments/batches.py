"""The examples of a training step, determined by the seed and the step alone."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["batch_of"]


def batch_of(step: int, examples: int, batch: int, seed: int) -> Tensor:
    """Indices (batch,) of a step from 1 on: each epoch is a new permutation whose incomplete last
    batch is dropped; all examples if they are fewer than a batch.
    """
    batch = min(batch, examples)
    epoch, place = divmod(step - 1, examples // batch)
    return _order(epoch, examples, seed)[place * batch : (place + 1) * batch]


@lru_cache(maxsize=2)
def _order(epoch: int, examples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(examples, generator=generator)
