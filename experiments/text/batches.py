"""Expressions as tensors, batched by similar length to reduce padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from experiments.data.listops import PADDING, Example, Grammar, examples

__all__ = ["batch_of", "by_length", "padded"]

_SORTED_TOGETHER = 8
"""Batches."""


def batch_of(
    step: int, grammar: Grammar, batch: int, stream: str, seed: int
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Tokens (batch, tokens) and answers (batch,) of a step from 1 on: new ones each step, which
    follow from stream, seed and step alone."""
    number, place = divmod(step - 1, _SORTED_TOGETHER)
    return _pool(number, grammar, batch, stream, seed)[place]


@lru_cache(maxsize=1)
def _pool(
    number: int, grammar: Grammar, batch: int, stream: str, seed: int
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """Eight batches of similar lengths each, in an order independent of length."""
    count = _SORTED_TOGETHER * batch
    drawn = examples(grammar, stream, seed, number * count, (number + 1) * count)
    batches = by_length(drawn, batch)
    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    order = torch.randperm(_SORTED_TOGETHER, generator=generator)
    return [batches[i] for i in order.tolist()]


def by_length(drawn: Sequence[Example], batch: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of at most `batch`, from the shortest on."""
    ranked = sorted(drawn, key=lambda one: len(one.tokens))
    return [padded(ranked[i : i + batch]) for i in range(0, len(ranked), batch)]


def padded(drawn: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Tokens (batch, tokens), as many as the longest has, and answers (batch,)."""
    longest = max(len(one.tokens) for one in drawn)
    rows = [[*one.tokens, *[PADDING] * (longest - len(one.tokens))] for one in drawn]
    return torch.tensor(rows), torch.tensor([one.answer for one in drawn])
