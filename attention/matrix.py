"""The estimated attention matrix, for inspection: quadratic time and memory."""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.denominators import KeyStatistics, divide, log_lower_bound, raised, rounding_floor
from attention.norms import lengths
from attention.precision import full_precision, lowest
from attention.products import exponential, key_unit, rows_times, times
from attention.streaming import StreamedMap, features_of_keys, features_of_queries
from attention.token_checks import check_tokens, without_queries


class Estimates(NamedTuple):
    """Kernel estimates of some queries with all keys, in units of one factor per query.

    The factor combines `products.key_unit` and the query's scale, so that `is_zero` applies to
    `denominator`.
    """

    kernel: Tensor
    """(..., rows, S), zero where a key is masked."""
    visible: Tensor
    """(..., rows, S) bool."""
    denominator: Tensor
    """(..., rows, 1), the sum of `kernel`."""
    floored: Tensor
    """(..., rows, 1), the denominator that attention uses."""


def attention_matrix(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Return the estimated attention matrix: x (..., L, d), y (..., S, d) -> (..., L, S).

    `matrix @ values` equals `attend`, except for the clipping of signed maps, whose entries can be
    negative and are clipped to [-1, 1] here. A row whose denominator is zero consists of zeros. L =
    0 gives (..., 0, S). Raises ValueError as `FeatureMap.attend`.
    """
    check_tokens(x, y, y, causal, key_mask)
    if x.shape[-2] == 0:
        return without_queries(x, y, y.mT)
    estimates = kernel_estimates(features, x, y, None, causal, key_mask)
    matrix = divide(estimates.kernel, estimates.floored, features.signed)
    return (matrix.clamp(-1, 1) if features.signed else matrix).to(x.dtype)


def kernel_estimates(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    rows: Tensor | None,
    causal: bool,
    key_mask: Tensor | None,
) -> Estimates:
    """Compute the estimates for the queries with indices `rows` (default: all), as attention
    does."""
    index = torch.arange(x.shape[-2], device=x.device) if rows is None else rows
    visible = torch.ones(index.shape[0], y.shape[-2], dtype=torch.bool, device=x.device)
    if causal:
        visible = torch.arange(y.shape[-2], device=x.device) <= index.unsqueeze(-1)
    if key_mask is not None:
        visible = visible & key_mask.unsqueeze(-2)
        y = y.masked_fill(~key_mask.unsqueeze(-1), 0)
    queries, query_scale = features_of_queries(features, x[..., index, :])
    keys, key_scale = features_of_keys(features, y)
    phi_q, phi_k = queries.mantissa, keys.mantissa
    with full_precision(phi_q):
        exponent = key_scale.mT.masked_fill(~visible, -torch.inf)
        reference = exponent.detach().amax(-1, keepdim=True).clamp_min(lowest(phi_k.dtype))
        decay = exponential(exponent - reference)
        shared = phi_k if features.signed else times(keys, key_unit(phi_k.dtype, False))
        kernel = times(decay, rows_times(queries, shared.mT))
        denominator = kernel.sum(-1, keepdim=True)
        floored = denominator
        if features.signed:
            log_floor = None
            if not features.own_kernel:
                statistics = KeyStatistics.of(
                    y.to(phi_k.dtype), None if key_mask is None else key_mask.unsqueeze(-1), causal
                )
                if causal:
                    statistics = KeyStatistics(*(t[..., index, :] for t in statistics))
                some = x[..., index, :].to(phi_q.dtype)
                log_floor = log_lower_bound(features.kernel, some, statistics) - query_scale
            floor = rounding_floor(lengths(phi_q), decay.mantissa @ lengths(phi_k))
            floored = raised(denominator, log_floor, reference, floor)
    return Estimates(kernel, visible.expand_as(kernel), denominator, floored)
