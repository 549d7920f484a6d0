"""Products with features whose gradients stay finite where denominators are tiny.

Features of positive maps are exponentials. Where a query and all its keys are large at different
random vectors, the denominator D of attention is close to the smallest float32. The output, a
ratio, is accurate. The gradient with respect to a feature is of order 1/D and overflows, while the
gradient with respect to the feature's logarithm, which flows on to the tokens, is of order 1.
Therefore:

* Products of features pass their gradient to the logarithms (`attention.relative`), multiplied by a
  share of the denominator.
* Sums over keys are in units of 1 / `key_unit`, so that D is as far from underflow as its
  derivatives are from overflow. A denominator below `least_denominator` counts as zero.

All factors are powers of two, so no bit of an output depends on them as long as nothing underflows.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attention.joining import parts
from attention.relative import (
    GATED_ROWS,
    ROWS,
    SUMS,
    TIMES,
    product,
    transposed_product,
)
from attention.tracing import is_exporting, known_now

LOG2_E = 1 / math.log(2)
_UNIT_BITS = {torch.float32: 72, torch.float64: 512}
"""Headroom in sums over keys: sums of values up to 2^56 in float32."""
_LEAST_BITS = {torch.float32: -96, torch.float64: -680}
"""Headroom in their inverses: summed upstream gradients times values up to 2^32 in float32."""


class Features(NamedTuple):
    """Features of tokens, each in units of the token's scale."""

    mantissa: Tensor
    """(..., L, F)"""
    logarithms: Tensor | None = None
    """(..., L, F), such that the mantissa is a constant times exp(logarithms), or None if gradients
    flow through the mantissa."""

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Features":
        """Apply a function to both tensors."""
        logarithms = None if self.logarithms is None else change(self.logarithms)
        return Features(change(self.mantissa), logarithms)

    def parts(self, rows: int | None) -> "list[Features]":
        """Split into blocks of `rows` tokens. None gives a single block."""
        mantissas = parts(self.mantissa, rows, -2)
        if self.logarithms is None:
            return [Features(mantissa) for mantissa in mantissas]
        return list(map(Features, mantissas, parts(self.logarithms, rows, -2)))


def key_unit(dtype: torch.dtype, signed: bool) -> float:
    """The factor of sums over keys; 1 for signed maps, whose denominators have a floor."""
    return 1.0 if signed else 2.0 ** _UNIT_BITS[dtype]


def least_denominator(dtype: torch.dtype) -> float:
    """The smallest denominator of a positive map, times `key_unit`, that does not count as zero."""
    return 2.0 ** _LEAST_BITS[dtype]


def exponential(logarithms: Tensor) -> Features:
    """exp(logarithms)."""
    return Features(logarithms.exp(), logarithms)


def times(features: Features, factor: float | Tensor) -> Tensor:
    """Multiply the mantissa by a number or a tensor that broadcasts with it."""
    mantissa, logarithms = features.mantissa, _differentiated(features)
    if logarithms is None:
        return mantissa * factor
    factor = torch.as_tensor(factor, dtype=mantissa.dtype, device=mantissa.device)
    return TIMES(logarithms, mantissa, factor)


def rows_times(features: Features, matrix: Tensor) -> Tensor:
    """mantissa @ matrix, for features of queries: (..., C, F), (..., F, n) -> (..., C, n)."""
    logarithms = _differentiated(features)
    if logarithms is None:
        return product(features.mantissa, matrix)
    return ROWS(logarithms, features.mantissa, matrix)


def gated_rows_times(features: Features, gates: Tensor, matrix: Tensor) -> Tensor:
    """(mantissa * gates) @ matrix: (..., C, F) each, (..., F, n) -> (..., C, n)."""
    logarithms = _differentiated(features)
    if logarithms is None:
        return product(features.mantissa * gates, matrix)
    return GATED_ROWS(logarithms, features.mantissa, gates, matrix)


def rows_times_each(features: Features, *matrices: Tensor) -> Sequence[Tensor]:
    """`rows_times` of each matrix, in one product if that saves gradient computations."""
    return _each(rows_times, features, matrices)


def sums_over_rows(features: Features, weights: Tensor) -> Tensor:
    """mantissa^T @ weights, for features of keys: (..., C, F), (..., C, n) -> (..., F, n)."""
    logarithms = _differentiated(features)
    if logarithms is None:
        return transposed_product(features.mantissa, weights)
    return SUMS(logarithms, features.mantissa, weights)


def sums_over_rows_each(features: Features, *weights: Tensor) -> Sequence[Tensor]:
    """`sums_over_rows` of each, in one product if that saves gradient computations."""
    return _each(sums_over_rows, features, weights)


def _each(
    product: Callable[[Features, Tensor], Tensor], features: Features, others: Sequence[Tensor]
) -> Sequence[Tensor]:
    alike = all(other.shape[:-1] == others[0].shape[:-1] for other in others)
    if alike and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        joined = product(features, torch.cat(tuple(others), -1))
        return joined.split([other.shape[-1] for other in others], -1)
    return [product(features, other) for other in others]


def accumulated(
    total: Tensor, kept: Features, keys: Features, weights: Tensor, *, own: bool
) -> Tensor:
    """total times kept, plus `sums_over_rows` of keys and weights, without gradients: (..., F, n).

    own: whether the total may be overwritten by the result.
    """
    sums = sums_over_rows(keys, weights)
    unchanged = known_now((kept.mantissa == 1).all()) if own and total.shape == sums.shape else None
    if unchanged is None:
        return times(kept, total) + sums
    return (total if unchanged else total.mul_(kept.mantissa)).add_(sums)


def _differentiated(features: Features) -> Tensor | None:
    """Return the logarithms if a gradient may be needed.

    Under `torch.vmap` tensors do not report requires_grad; a compiler does, and exported graphs are
    for inference.
    """
    logarithms = features.logarithms
    if logarithms is None or not torch.is_grad_enabled():
        return None
    if torch.compiler.is_compiling() and (is_exporting() or not logarithms.requires_grad):
        return None
    return logarithms
