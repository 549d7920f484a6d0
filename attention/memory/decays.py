"""Forgetting over many frames at once: what each leaves of those before it."""

import torch
from torch import Tensor

from attention.products import Features, rows_times, times


def later(length: int, like: Tensor, diagonal: int = 1) -> Tensor:
    """(length, length), -inf where column j is later than row i: from `diagonal` on, else 0."""
    return like.new_full((length, length), -torch.inf).triu(diagonal)


def accumulated(before: Tensor, own: Tensor, kept: Features, weights: Features) -> Tensor:
    """Sums at the end of each of T frames: kept_t before + sum_s weights_ts own_s.

    Args:
        before: (..., m, n), the sum before the first frame.
        own: (..., T, m, n), what each frame adds.
        kept: (..., T), what each frame's end has left of `before`.
        weights: (..., T, T), what frame t has left of what frame s added; 0 where s is later.

    Returns (..., T, m, n).
    """
    added = rows_times(weights, own.flatten(-2)).unflatten(-1, own.shape[-2:])
    return times(_widened(kept), before.unsqueeze(-3)) + added


def _widened(kept: Features) -> Features:
    """(..., T) -> (..., T, 1, 1)."""
    logarithms = kept.logarithms
    return Features(
        kept.mantissa[..., None, None], None if logarithms is None else logarithms[..., None, None]
    )
