"""Products with features whose gradients stay numbers where denominators are tiny.

Features of positive maps are exponentials. Where a query and all its keys are large at different
random vectors, the denominator D of attention is as small as float32 has numbers. The output, a
ratio, is sound; the gradient by a feature is of order 1/D and overflows, though that by the
feature's logarithm, which is what goes on to tokens, is of order 1. So:

* Products of features hand their gradient to the logarithms (`attention.relative`). What multiplies
  it is a share of the denominator.
* Sums over keys are in units of 1 / `key_unit`, so that D is as far from underflow as its
  derivatives are from overflow. Attention takes a denominator below `least_denominator` for zero.

All factors are powers of two: no bit of an output depends on them, as long as nothing underflows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attention.joining import parts
from attention.relative import ROWS, SUMS, TIMES, product, transposed_product
from attention.tracing import is_exporting, known_now

_UNIT_BITS = {torch.float32: 72, torch.float64: 512}
"""Sums over keys leave room for sums of values up to 2^56 in float32."""
_LEAST_BITS = {torch.float32: -96, torch.float64: -680}
"""Their inverses leave room for upstream gradients times values, summed, up to 2^32 in float32."""


class Features(NamedTuple):
    """Features of tokens, in a unit of each token's own."""

    mantissa: Tensor
    """(..., L, F)"""
    logarithms: Tensor | None = None
    """(..., L, F): the mantissa is a constant times exp(logarithms); None: gradients go through
    the mantissa."""

    def parts(self, rows: int | None) -> "list[Features]":
        """Those of `rows` tokens each; None: of all."""
        mantissas = parts(self.mantissa, rows, -2)
        if self.logarithms is None:
            return [Features(mantissa) for mantissa in mantissas]
        return list(map(Features, mantissas, parts(self.logarithms, rows, -2)))


def key_unit(dtype: torch.dtype, signed: bool) -> float:
    """What sums over keys are multiplied by; 1 for signed maps, whose denominators have a floor."""
    return 1.0 if signed else 2.0 ** _UNIT_BITS[dtype]


def least_denominator(dtype: torch.dtype) -> float:
    """The least denominator of a positive map, times `key_unit`, that is not taken for zero."""
    return 2.0 ** _LEAST_BITS[dtype]


def exponential(logarithms: Tensor) -> Features:
    """exp(logarithms)."""
    return Features(logarithms.exp(), logarithms)


def times(features: Features, factor: float | Tensor) -> Tensor:
    """The mantissa times a number, or times what broadcasts with it."""
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


def rows_times_each(features: Features, *matrices: Tensor) -> Sequence[Tensor]:
    """`rows_times` of each matrix, in one product where it saves passes of gradients."""
    return _each(rows_times, features, matrices)


def sums_over_rows(features: Features, weights: Tensor) -> Tensor:
    """mantissa^T @ weights, for features of keys: (..., C, F), (..., C, n) -> (..., F, n)."""
    logarithms = _differentiated(features)
    if logarithms is None:
        return transposed_product(features.mantissa, weights)
    return SUMS(logarithms, features.mantissa, weights)


def sums_over_rows_each(features: Features, *weights: Tensor) -> Sequence[Tensor]:
    """`sums_over_rows` of each, in one product where it saves passes of gradients."""
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

    own: the total is nobody else's, and may hold the result.
    """
    if own:
        unchanged = known_now((kept.mantissa == 1).all())
        rows = keys.mantissa.mT
        if unchanged is not None and total.shape[:-2] == rows.shape[:-2] == weights.shape[:-2]:
            return added_product(total if unchanged else total.mul_(kept.mantissa), rows, weights)
    return times(kept, total) + sums_over_rows(keys, weights)


def added_product(total: Tensor, rows: Tensor, matrix: Tensor) -> Tensor:
    """total + rows @ matrix, all of the same leading dimensions, in the total's memory."""
    leading = total.shape[:-2].numel()
    flat = (t.reshape(leading, *t.shape[-2:]) for t in (rows, matrix))
    total.view(leading, *total.shape[-2:]).baddbmm_(*flat)
    return total


def _differentiated(features: Features) -> Tensor | None:
    """The logarithms, where a gradient may be asked for.

    Under `torch.vmap` no tensor says that it needs one; a compiler knows, and what is exported is
    for inference.
    """
    logarithms = features.logarithms
    if logarithms is None or not torch.is_grad_enabled():
        return None
    if torch.compiler.is_compiling() and (is_exporting() or not logarithms.requires_grad):
        return None
    return logarithms
