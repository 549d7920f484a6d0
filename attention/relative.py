"""Products of exponentials whose gradients with respect to the logarithms cannot overflow.

With m = c exp(l), the gradient of f(m) with respect to l is m f'(m). Where f'(m) overflows and m is
tiny, their product does not: rows are scaled to size 1 before the product f' and scaled back by m
after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.onednn import matmul
from attention.tracing import known


def power_of_two(sizes: Tensor) -> Tensor:
    """Return the largest power of two in each number, or 1 for 0. Constant for gradients."""
    with torch.no_grad():  # not `detach`, which the older form of `torch.vmap` does not support
        return sizes.log2().floor().exp2().masked_fill(sizes == 0, 1)


def largest_entry(rows: Tensor) -> Tensor:
    """max |.| of each row: (..., C, F) -> (..., C, 1)."""
    return rows.abs().amax(-1, keepdim=True)


def product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix. Products with columns are several times slower than products with rows."""
    column = matrix.shape[-1] == 1 and matrix.dtype == rows.dtype
    return (matrix.mT @ rows.mT).mT if column else matmul(rows, matrix)


SHORT = 2048
"""Number of terms above which a product is summed in blocks: rounding errors of one sum grow with
the number of its terms."""
LONGEST_SUM = 256
"""Number of terms of a block."""


def transposed_product(rows: Tensor, weights: Tensor) -> Tensor:
    """rows^T @ weights, as `product`. Long sums are added in blocks, whose sums are added by the
    pairwise summation of `torch.sum`."""
    length = rows.shape[-2]
    if not isinstance(length, int) or length <= SHORT:
        column = weights.shape[-1] == 1 and weights.dtype == rows.dtype
        return (weights.mT @ rows).mT if column else matmul(rows.mT, weights)
    whole = length - length % LONGEST_SUM
    blocks = (t[..., :whole, :].unflatten(-2, (-1, LONGEST_SUM)) for t in (rows, weights))
    total = transposed_product(*blocks).sum(-3)
    if whole == length:
        return total
    return total + transposed_product(rows[..., whole:, :], weights[..., whole:, :])


def relative_gradient(left: Tensor, right: Tensor, mantissa: Tensor) -> Tensor:
    """(left @ right^T) * mantissa: (..., C, n), (..., F, n), (..., C, F) -> (..., C, F).

    Rows of `left` are scaled to size 1 meanwhile, unless the product is known to be in range.
    """
    if torch.is_grad_enabled() or left.device.type != "cpu" or not _in_range(left, right):
        unit = power_of_two(largest_entry(left))
        return ((left / unit) @ right.mT) * (mantissa * unit)
    return (left @ right.mT).mul_(mantissa)


def _in_range(left: Tensor, right: Tensor) -> bool:
    """Whether no entry of left @ right^T overflows; False where that cannot be read."""
    if left.numel() == 0 or right.numel() == 0:
        return False
    largest = left.abs().amax() * right.abs().amax() * left.shape[-1]
    return known(largest < torch.finfo(left.dtype).max) is True


class _Function(torch.autograd.Function):
    """f(mantissa, other), linear in both. The mantissa is saved with its graph, for second
    derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logarithms, mantissa, other = inputs
        ctx.shape = logarithms.shape
        ctx.save_for_backward(mantissa, other)
        ctx.save_for_forward(mantissa, other)


def _forward_mode(f: Callable[[Tensor, Tensor], Tensor], ctx: Any, *tangents: Any) -> Tensor:
    of_logarithms, _, of_other = tangents
    mantissa, other = ctx.saved_tensors
    parts = [] if of_logarithms is None else [f(mantissa * of_logarithms, other)]
    parts += [] if of_other is None else [f(mantissa, of_other)]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


class Times(_Function):
    """mantissa * factor"""

    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, factor: Tensor) -> Tensor:
        return mantissa * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        mantissa, factor = ctx.saved_tensors
        relative = grad * (mantissa * factor)
        return relative.sum_to_size(ctx.shape), None, (grad * mantissa).sum_to_size(factor.shape)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _forward_mode(torch.mul, ctx, *tangents)


class Rows(_Function):
    """mantissa @ matrix"""

    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, matrix: Tensor) -> Tensor:
        return product(mantissa, matrix)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        mantissa, matrix = ctx.saved_tensors
        relative = relative_gradient(grad, matrix, mantissa)
        of_matrix = mantissa.mT @ grad
        return relative.sum_to_size(ctx.shape), None, of_matrix.sum_to_size(matrix.shape)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _forward_mode(product, ctx, *tangents)


class Sums(_Function):
    """mantissa^T @ weights"""

    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, weights: Tensor) -> Tensor:
        return transposed_product(mantissa, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        mantissa, weights = ctx.saved_tensors
        relative = relative_gradient(weights, grad, mantissa)
        of_weights = mantissa @ grad
        return relative.sum_to_size(ctx.shape), None, of_weights.sum_to_size(weights.shape)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _forward_mode(transposed_product, ctx, *tangents)


class GatedRows(_Function):
    """(mantissa * gates) @ matrix, for gates that may be 0 and have a gradient there."""

    @staticmethod
    def forward(logarithms: Tensor, mantissa: Tensor, gates: Tensor, matrix: Tensor) -> Tensor:
        return product(mantissa * gates, matrix)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logarithms, *linear = inputs
        ctx.shape = logarithms.shape
        ctx.save_for_backward(*linear)
        ctx.save_for_forward(*linear)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        mantissa, gates, matrix = ctx.saved_tensors
        relative = relative_gradient(grad, matrix, mantissa)
        of_matrix = (mantissa * gates).mT @ grad
        return (
            (relative * gates).sum_to_size(ctx.shape),
            None,
            relative.sum_to_size(gates.shape),
            of_matrix.sum_to_size(matrix.shape),
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        of_logarithms, _, of_gates, of_matrix = tangents
        mantissa, gates, matrix = ctx.saved_tensors
        parts = [] if of_logarithms is None else [product(mantissa * of_logarithms * gates, matrix)]
        parts += [] if of_gates is None else [product(mantissa * of_gates, matrix)]
        parts += [] if of_matrix is None else [product(mantissa * gates, of_matrix)]
        return sum(parts[1:], parts[0])


class Pair(NamedTuple):
    """A product in two forms: for eager code, and for `torch.compile`, which does not support `jvp`
    and warns about such functions."""

    eager: type[_Function]
    compiled: Any

    @classmethod
    def of(cls, function: Any) -> "Pair":
        name = f"foveate_attention::{function.__name__.lower()}"
        operator = torch.library.custom_op(name, function.forward, mutates_args=())
        operator.register_fake(function.forward)
        operator.register_autograd(function.backward, setup_context=function.setup_context)
        return cls(function, operator)

    def __call__(self, logarithms: Tensor, mantissa: Tensor, *others: Tensor) -> Tensor:
        call = self.compiled if torch.compiler.is_compiling() else self.eager.apply
        result: Tensor = call(logarithms, mantissa, *others)
        return result


TIMES, ROWS, SUMS, GATED_ROWS = (Pair.of(function) for function in (Times, Rows, Sums, GatedRows))
