"""Attention of all queries over all keys by blocks of outer products that fit the cache, for long
values.

A hybrid of two bases has features r (x) f, and C * (r (x) f) for keys (see
`attention.hybrid.bipolar`): T (R + 1) numbers per token. Sums over keys are computed without C,
which then multiplies the sums. Tokens are in the last dimension, so that the outer product of a
block has long rows, and f, r and per-token numbers are contiguous. Denominators and norms need no
outer products: denominators are (R + 1) x T matrices, and |r (x) f| = |r| |f|.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from attention.causal import slices
from attention.components import SCORE, component
from attention.denominators import bounded, divide, is_zero, raised, rounding_floor
from attention.hybrid.factored import Factors
from attention.joining import Rows
from attention.norms import root
from attention.onednn import LEAST, matmul
from attention.precision import full_precision, lowest, product_dtype
from attention.streaming import Prepared, rows_at_once
from attention.tracing import known_now, may_write


class _Sums(NamedTuple):
    """Sums over keys, in units of exp(log_scale)."""

    values: Tensor
    """(..., (R + 1) T, dv), sum of r (x) f v^T."""
    normaliser: Tensor
    """(..., R + 1, T), sum of r f^T."""
    mass: Tensor
    """(..., 1, 1), sum of |phi|_2 over keys, which bounds rounding errors."""
    largest_value: Tensor
    """(..., 1, 1), max |v|."""
    log_scale: Tensor
    """(..., 1, 1)"""


def outer_attention(
    factors: Callable[[Tensor], Factors], coefficients: Tensor, tokens: Prepared
) -> Tensor:
    """Like `attention.linear.bidirectional_blocks`, for signed features: (..., L, dv).

    Args:
        factors: function that returns the factors of queries or keys (..., L, d), with tokens in
            the last dimension.
        coefficients: C, (T, R + 1) or (heads, T, R + 1).
        tokens: queries, keys and values.
    """
    values = tokens.values
    weights = coefficients.to(values.dtype).mT
    rank, count = weights.shape[-2:]
    outer = _Outer(rank * count, tokens)
    few = rank + count
    sums = None
    for y, v, visible in tokens.keys(rows_at_once(few, tokens.y)):
        keys = factors(y)
        if visible is not None:
            keys = keys._replace(log_scale=keys.log_scale.masked_fill(~visible.mT, -torch.inf))
        with component(SCORE), full_precision(values):
            sums = _absorbed(sums, keys, weights, v, outer)
    assert sums is not None
    with component(SCORE), full_precision(values):
        weighted = sums.values.unflatten(-2, weights.shape[-2:]) * weights.unsqueeze(-1)
        normaliser = sums.normaliser * weights
        sums = sums._replace(values=weighted.flatten(-3, -2), normaliser=normaliser)
    outputs = Rows(tokens.x.shape[-2])
    for x, bound in tokens.queries(rows_at_once(few, tokens.x)):
        assert bound is not None
        queries = factors(x)
        with component(SCORE), full_precision(values):
            _read(outputs, queries, sums, bound, outer)
    return outputs.whole()


BLOCK = 2**18
"""Number of entries of a block of one sequence: 1 MiB in float32."""


class _Outer:
    """Yields outer products of blocks that fit the cache, in the same memory."""

    def __init__(self, width: int, tokens: Prepared) -> None:
        self._rows = rows_at_once(width, tokens.y)
        self._dtype = product_dtype(tokens.x, tokens.y)
        self._memory: Tensor | None = None

    def blocks(self, rho: Tensor, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield tokens and their r (x) f, (..., (R + 1) T, L), from (..., R + 1, L) and (..., T,
        L)."""
        reused = may_write(rho, features)
        if self._dtype == torch.bfloat16:
            rho, features = rho.to(self._dtype), features.to(self._dtype)
        for part in slices(rho.shape[-1], self._rows if reused else None):
            left, right = rho[..., part].unsqueeze(-2), features[..., part].unsqueeze(-3)
            if reused:
                product = torch.mul(left, right, out=self._buffer(left, right))
            else:
                product = left * right
            yield part, product.flatten(-3, -2)

    def one_by_one(self, rho: Tensor, features: Tensor, others: Tensor) -> bool:
        """Whether products with (..., n, dv) are formed for one sequence after the other: blocks
        are longer then."""
        leading, length = rho.shape[:-2], rho.shape[-1]
        count = rho.shape[-2] * features.shape[-2]
        return (
            may_write(rho, features, others)
            and self._dtype == features.dtype
            and features.shape[:-2] == leading == others.shape[:-2]
            and length * count * others.shape[-1] >= LEAST
            and rho.device.type == "cpu"
            and not torch.jit.is_tracing()
        )

    def absorb(self, total: Tensor | None, rho: Tensor, features: Tensor, v: Tensor) -> Tensor:
        """Return total + (r (x) f) v, possibly in place: (..., (R + 1) T, dv)."""
        count = rho.shape[-2] * features.shape[-2]
        sums = v.new_zeros(*v.shape[:-2], count, v.shape[-1]) if total is None else total
        each = self._each(rho, features), v.flatten(0, -3), sums.flatten(0, -3)
        for one, values, own in zip(*each, strict=True):
            for part, product in one:
                own += matmul(product, values[part])
        return sums

    def read(
        self, outputs: Rows, rho: Tensor, features: Tensor, sums: _Sums, denominator: Tensor
    ) -> None:
        """Add what `_read` does."""
        values, largest = sums.values, sums.largest_value.expand(*denominator.shape[:-2], 1, 1)
        read = outputs.next(denominator, values.shape[-1])
        denominator = denominator.masked_fill(is_zero(denominator, True), torch.inf)
        each = (t.flatten(0, -3) for t in (values, read, denominator, largest))
        for one, total, out, below, most in zip(self._each(rho, features), *each, strict=True):
            for part, product in one:
                # The division follows, as it is slow on transposed rows.
                result = out[part].copy_(matmul(product.mT, total)).div_(below[part])
                bounded(result, most)

    def _each(self, rho: Tensor, features: Tensor) -> Iterator[Iterator[tuple[slice, Tensor]]]:
        """Yield the blocks of each sequence."""
        length = rho.shape[-1]
        count = -(-length * rho.shape[-2] * features.shape[-2] // BLOCK)
        self._rows = -(-length // count)
        for r, f in zip(rho.flatten(0, -3), features.flatten(0, -3), strict=True):
            yield self.blocks(r, f)

    def add(self, total: Tensor | None, product: Tensor, values: Tensor) -> Tensor:
        """Compute total + product @ values, in place if the memory of total may be reused."""
        if total is None:
            return matmul(product, values)
        added = matmul(product, values)
        alike = total.shape == added.shape
        return total.add_(added) if alike and may_write(total, product, values) else total + added

    def _buffer(self, left: Tensor, right: Tensor) -> Tensor:
        """Return memory for left * right, contiguous for a block of any length."""
        shape = (*right.shape[:-3], left.shape[-3], *right.shape[-2:])
        if left.shape[:-3] != right.shape[:-3]:
            shape = torch.broadcast_shapes(left.shape, right.shape)
        if self._memory is None or self._memory.numel() < math.prod(shape):
            self._memory = left.new_empty(math.prod(shape))
        return self._memory[: math.prod(shape)].view(shape)


def _absorbed(
    sums: _Sums | None, keys: Factors, weights: Tensor, values: Tensor, outer: _Outer
) -> _Sums:
    """Add keys and values (..., L, dv) to the sums."""
    features, log_scale, rho = keys
    reference = log_scale.detach().amax(-1, keepdim=True).clamp_min(lowest(values.dtype))
    if sums is not None:
        sums, reference = _rescaled(sums, reference)
    rho = rho * (log_scale - reference).exp()  # not the features, which are larger
    squares = (weights.square() @ features.square() * rho.square()).sum(-2, keepdim=True)
    mass = root(squares).sum(-1, keepdim=True)
    normaliser = rho @ features.mT
    largest = values.abs().amax((-2, -1), keepdim=True)
    total = None if sums is None else sums.values
    if outer.one_by_one(rho, features, values):
        total = outer.absorb(total, rho, features, values)
    else:
        for part, product in outer.blocks(rho, features):
            total = outer.add(total, product, values[..., part, :])
    assert total is not None
    if sums is None:
        return _Sums(total, normaliser, mass, largest, reference)
    largest = torch.maximum(sums.largest_value, largest)
    return _Sums(total, sums.normaliser + normaliser, sums.mass + mass, largest, reference)


def _rescaled(sums: _Sums, reference: Tensor) -> tuple[_Sums, Tensor]:
    """Return the sums in units of the larger of both scales, and that scale."""
    larger = torch.maximum(sums.log_scale, reference)
    if known_now((larger == sums.log_scale).all()):
        return sums, larger
    kept = (sums.log_scale - larger).exp()
    return sums._replace(
        values=sums.values * kept, normaliser=sums.normaliser * kept, mass=sums.mass * kept
    ), larger


def _read(outputs: Rows, queries: Factors, sums: _Sums, log_bound: Tensor, outer: _Outer) -> None:
    """Add numerator over denominator for queries (..., L, .). The sums include C."""
    features, log_scale, rho = queries
    denominator = (sums.normaliser @ features * rho).sum(-2, keepdim=True)
    size = root(features.square().sum(-2, keepdim=True) * rho.square().sum(-2, keepdim=True))
    floor = rounding_floor(size, sums.mass)
    denominator = raised(denominator, log_bound.mT - log_scale, sums.log_scale, floor).mT
    if outer.one_by_one(rho, features, sums.values):
        outer.read(outputs, rho, features, sums, denominator)
        return
    for part, product in outer.blocks(rho, features):
        ratio = divide(matmul(product.mT, sums.values), denominator[..., part, :], signed=True)
        outputs.add(bounded(ratio, sums.largest_value))
