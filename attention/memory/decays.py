"""Decay over many frames at once."""

import torch
from torch import Tensor

from attention.products import Features, rows_times, times


def later(length: int, like: Tensor, diagonal: int = 1) -> Tensor:
    """Return (length, length): -inf where column j is later than row i, from `diagonal` on, else
    0."""
    return like.new_full((length, length), -torch.inf).triu(diagonal)


def accumulated(before: Tensor, own: Tensor, kept: Features, weights: Features) -> Tensor:
    """Return the sums after each of T frames: kept_t before + sum_s weights_ts own_s.

    Args:
        before: (..., m, n), the sum before the first frame.
        own: (..., T, m, n), the contribution of each frame.
        kept: (..., T), the factor of `before` after each frame.
        weights: (..., T, T), the factor at frame t of the contribution of frame s; 0 if s is later.

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
