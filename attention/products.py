"""Products with features whose gradients stay numbers where denominators are tiny.

Features of positive maps are exponentials. Where a query and all its keys are large at different
random vectors, the denominator D of attention is as small as float32 has numbers. The output, a
ratio, is sound; the gradient by a feature is of order 1/D and overflows, though that by the
feature's logarithm, which is what goes on to tokens, is of order 1. So:

* Products of features hand their gradient to the logarithms. What multiplies it is a share of the
  denominator: rows are brought to size 1 before the product and back after it.
* Sums over keys are in units of `key_unit`, so that D is as far from underflow as its derivatives
  are from overflow. Attention counts a denominator below `least_denominator` as zero.

All factors are powers of two: no bit of an output depends on them, as long as nothing underflows.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

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

    def rows(self, part: slice) -> "Features":
        """Those of some tokens."""
        if self.logarithms is None:
            return Features(self.mantissa[..., part, :])
        return Features(self.mantissa[..., part, :], self.logarithms[..., part, :])


def key_unit(dtype: torch.dtype, signed: bool) -> float:
    """What sums over keys are multiplied by; 1 for signed maps, whose denominators have a floor."""
    return 1.0 if signed else 2.0 ** _UNIT_BITS[dtype]


def least_denominator(dtype: torch.dtype) -> float:
    """The least denominator of a positive map, in units of keys', that is not taken for zero."""
    return 2.0 ** _LEAST_BITS[dtype]


def power_of_two(sizes: Tensor) -> Tensor:
    """The largest power of two in each number; 1 for 0. A constant for gradients."""
    sizes = sizes.detach()
    return sizes.log2().floor().exp2().masked_fill(sizes == 0, 1)


def largest_entry(rows: Tensor) -> Tensor:
    """max |.| of each row: (..., C, F) -> (..., C, 1)."""
    return rows.abs().amax(-1, keepdim=True)


def times(features: Features, factor: float | Tensor) -> Tensor:
    """The mantissa times a number, or times what broadcasts with it."""
    if _plain(features):
        return features.mantissa * factor
    return _TIMES[torch.compiler.is_compiling()].apply(*_both(features), factor)


def exponential(logarithms: Tensor) -> Features:
    """exp(logarithms)."""
    return Features(logarithms.exp(), logarithms)


def rows_times(features: Features, matrix: Tensor) -> Tensor:
    """mantissa @ matrix, for features of queries: (..., C, F), (..., F, n) -> (..., C, n)."""
    if _plain(features):
        return _product(features.mantissa, matrix)
    return _ROWS[torch.compiler.is_compiling()].apply(*_both(features), matrix)


def sums_over_rows(features: Features, weights: Tensor) -> Tensor:
    """mantissa^T @ weights, for features of keys: (..., C, F), (..., C, n) -> (..., F, n)."""
    if _plain(features):
        return _transposed_product(features.mantissa, weights)
    return _SUMS[torch.compiler.is_compiling()].apply(*_both(features), weights)


def _plain(features: Features) -> bool:
    return features.logarithms is None or not torch.is_grad_enabled()


def _both(features: Features) -> tuple[Tensor, Tensor]:
    assert features.logarithms is not None
    return features.logarithms, features.mantissa


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    # Products with columns are several times slower than those with rows.
    return (matrix.mT @ rows.mT).mT if matrix.shape[-1] == 1 else rows @ matrix


def _transposed_product(rows: Tensor, weights: Tensor) -> Tensor:
    return (weights.mT @ rows).mT if weights.shape[-1] == 1 else rows.mT @ weights


class _Function(torch.autograd.Function):
    """f(mantissa, other), linear in both; its derivative by the logarithms is by mantissa * them.

    The mantissa is saved with its graph, which second derivatives go through.
    """

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logarithms, mantissa, other = inputs
        ctx.shape = logarithms.shape
        ctx.save_for_backward(mantissa, other)
        ctx.save_for_forward(mantissa, other)


class _Times(_Function):
    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, factor: float | Tensor) -> Tensor:
        return mantissa * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logarithms, mantissa, factor = inputs
        ctx.shape = logarithms.shape
        ctx.factor = None if isinstance(factor, Tensor) else factor
        saved = (mantissa, factor) if isinstance(factor, Tensor) else (mantissa,)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor | None]:
        mantissa, *factors = ctx.saved_tensors
        factor = factors[0] if factors else ctx.factor
        of_factor = (grad * mantissa).sum_to_size(factor.shape) if factors else None
        return (grad * (mantissa * factor)).sum_to_size(ctx.shape), None, of_factor


class _Rows(_Function):
    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, matrix: Tensor) -> Tensor:
        return _product(mantissa, matrix)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        mantissa, matrix = ctx.saved_tensors
        unit = power_of_two(largest_entry(grad))
        relative = ((grad / unit) @ matrix.mT) * (mantissa * unit)
        of_matrix = mantissa.mT @ grad
        return relative.sum_to_size(ctx.shape), None, of_matrix.sum_to_size(matrix.shape)


class _Sums(_Function):
    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, weights: Tensor) -> Tensor:
        return _transposed_product(mantissa, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        mantissa, weights = ctx.saved_tensors
        unit = power_of_two(largest_entry(weights))
        relative = ((weights / unit) @ grad.mT) * (mantissa * unit)
        of_weights = mantissa @ grad
        return relative.sum_to_size(ctx.shape), None, of_weights.sum_to_size(weights.shape)


class _TimesForward(_Times):
    """With forward-mode derivatives, which `torch.compile` does not take."""

    @staticmethod
    def jvp(ctx: Any, of_logarithms: Tensor | None, _: Any, of_factor: Tensor | None) -> Tensor:
        mantissa, *factors = ctx.saved_tensors
        factor = factors[0] if factors else ctx.factor
        return _sum(
            None if of_logarithms is None else mantissa * of_logarithms * factor,
            None if of_factor is None else mantissa * of_factor,
        )


class _RowsForward(_Rows):
    @staticmethod
    def jvp(ctx: Any, of_logarithms: Tensor | None, _: Any, of_matrix: Tensor | None) -> Tensor:
        mantissa, matrix = ctx.saved_tensors
        return _sum(
            None if of_logarithms is None else _product(mantissa * of_logarithms, matrix),
            None if of_matrix is None else _product(mantissa, of_matrix),
        )


class _SumsForward(_Sums):
    @staticmethod
    def jvp(ctx: Any, of_logarithms: Tensor | None, _: Any, of_weights: Tensor | None) -> Tensor:
        mantissa, weights = ctx.saved_tensors
        return _sum(
            None
            if of_logarithms is None
            else _transposed_product(mantissa * of_logarithms, weights),
            None if of_weights is None else _transposed_product(mantissa, of_weights),
        )


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor:
    if first is None or second is None:
        found = second if first is None else first
        assert found is not None
        return found
    return first + second


_TIMES = (_TimesForward, _Times)
_ROWS = (_RowsForward, _Rows)
_SUMS = (_SumsForward, _Sums)
