"""Attention of all queries over all keys without forming outer products.

A hybrid of two bases has features r (x) f, and C * (r (x) f) for keys (see
`attention.hybrid.bipolar`): T (R + 1) numbers per token. The sums over keys need only the T numbers
of f, and the products of r and the dv values:

    sum_j (r_j (x) f_j) [v_j, 1]^T = sum_j f_j (x) r_j (x) [v_j, 1],

and a query multiplies them by f first, then by r. The number of multiplications is the same, but
less memory is transferred: (R + 1) (dv + 1) numbers per token instead of T (R + 1).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from attention.components import SCORE, component
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.joining import Rows
from attention.norms import lengths, root
from attention.precision import full_precision, lowest
from attention.relative import largest_entry
from attention.streaming import Prepared, rows_at_once


class Factors(NamedTuple):
    """Factors of the features r (x) f of tokens, in units of exp(log_scale), possibly
    transposed."""

    features: Tensor
    """f (..., L, T)"""
    log_scale: Tensor
    """(..., L, 1)"""
    rho: Tensor
    """r (..., L, R + 1)"""


class _Sums(NamedTuple):
    """Sums over keys, in units of exp(log_scale)."""

    products: Tensor
    """(..., T, (R + 1) (dv + 1)), sum of f (x) r (x) [v, 1]."""
    mass: Tensor
    """(..., 1, 1), sum of |phi|_2 over keys, which bounds rounding errors."""
    log_scale: Tensor
    """(..., 1, 1)"""


def factored_attention(
    factors: Callable[[Tensor], Factors], coefficients: Tensor, tokens: Prepared
) -> Tensor:
    """Like `attention.linear.bidirectional_blocks`, for signed features: (..., L, dv).

    Args:
        factors: function that returns the factors of queries or keys (..., L, d).
        coefficients: C, (T, R + 1) or (heads, T, R + 1).
        tokens: queries, keys and values.
    """
    values = tokens.values
    coefficients = coefficients.to(values.dtype)
    count, rank = coefficients.shape[-2:]
    width = count + rank * (values.shape[-1] + 1)
    parts = []
    for y, v, visible in tokens.keys(rows_at_once(width, tokens.y)):
        keys = factors(y)
        if visible is not None:
            keys = keys._replace(log_scale=keys.log_scale.masked_fill(~visible, -torch.inf))
        with component(SCORE), full_precision(values):
            parts.append(_absorbed(keys, coefficients, v))
    with component(SCORE), full_precision(values):
        sums = _joined(parts)
        products = sums.products.unflatten(-1, (rank, -1)) * coefficients.unsqueeze(-1)
        sums = sums._replace(products=products.flatten(-2))
        largest_value = largest_entry(values).amax(-2, keepdim=True)
    outputs = Rows(tokens.x.shape[-2])
    for x, bound in tokens.queries(rows_at_once(width, tokens.x)):
        assert bound is not None
        queries = factors(x)
        with component(SCORE), full_precision(values):
            ratio = _read(queries, sums, bound)
            outputs.add(bounded(ratio, largest_value))
    return outputs.whole()


def _absorbed(keys: Factors, coefficients: Tensor, values: Tensor) -> _Sums:
    """Compute the sums over keys with values (..., L, dv)."""
    features, log_scale, rho = keys
    reference = log_scale.detach().amax(-2, keepdim=True).clamp_min(lowest(values.dtype))
    weight = (log_scale - reference).exp()
    extended = torch.cat((values, values.new_ones(*values.shape[:-1], 1)), -1) * weight
    products = (rho.unsqueeze(-1) * extended.unsqueeze(-2)).flatten(-2)
    squares = (features.square() @ coefficients.square()) * rho.square()
    size = root(squares.sum(-1, keepdim=True))
    return _Sums(features.mT @ products, (size * weight).sum(-2, keepdim=True), reference)


def _joined(parts: list[_Sums]) -> _Sums:
    """Add the sums over the keys of all parts."""
    if len(parts) == 1:
        return parts[0]
    log_scale = torch.stack([part.log_scale for part in parts]).amax(0)
    kept = [(part.log_scale - log_scale).exp() for part in parts]
    return _Sums(
        torch.stack([part.products * k for part, k in zip(parts, kept, strict=True)]).sum(0),
        torch.stack([part.mass * k for part, k in zip(parts, kept, strict=True)]).sum(0),
        log_scale,
    )


def _read(queries: Factors, sums: _Sums, log_bound: Tensor) -> Tensor:
    """Return numerator over denominator for queries (..., L, .): (..., L, dv). The sums include
    C."""
    features, log_scale, rho = queries
    seen = (features @ sums.products).unflatten(-1, (rho.shape[-1], -1))
    both = (rho.unsqueeze(-1) * seen).sum(-2)
    numerator, denominator = both[..., :-1], both[..., -1:]
    floor = rounding_floor(lengths(features) * lengths(rho), sums.mass)
    denominator = raised(denominator, log_bound - log_scale, sums.log_scale, floor)
    return divide(numerator, denominator, signed=True)
