"""Diagnose linear attention on given tokens: negative estimates and invalid denominators.

Hybrid Random Features section 4.2 reports the share of negative kernel estimates; this module also
reports the share of denominators that the policy of `attention.denominators` raises. For positive
maps a denominator can only be lost by underflow; the row's output is then zeros.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.denominators import is_zero
from attention.matrix import kernel_estimates
from attention.options import check_count
from attention.streaming import StreamedMap
from attention.token_checks import check_tokens


class Diagnosis(NamedTuple):
    """Result of `diagnose`: shares in [0, 1]; `negative_estimates` is 0 for positive maps."""

    clamped_rows: float
    """Share of the queries whose denominator is below the floor or underflows.

    An underflow counts as zero although the query sees a key, and gives an output of zeros. Use
    float64 or shorter queries and keys."""
    negative_estimates: float
    """Share of the pairs of a query and a visible key whose kernel estimate is negative."""
    queries: int
    """Number of queries examined per sequence."""


@torch.no_grad()
def diagnose(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    max_queries: int = 256,
) -> Diagnosis:
    """Examine up to `max_queries` evenly spaced queries, each with all its keys.

    x (..., L, d), y (..., S, d), as for `FeatureMap.attend`, scaling included. Memory is
    O(max_queries S). A causal query that sees no key counts as having a valid denominator.

    Raises ValueError as `attend`, for L = 0 and for max_queries below 1.
    """
    check_count("max_queries", max_queries)
    check_tokens(x, y, y, causal, key_mask)
    if x.shape[-2] == 0:
        raise ValueError(f"x must have at least one query, got shape {tuple(x.shape)}")
    length = x.shape[-2]
    count = min(length, max_queries)
    rows = torch.linspace(0, length - 1, count, device=x.device).round().long()
    estimates = kernel_estimates(features, x, y, rows, causal, key_mask)
    denominator = estimates.denominator
    sees = estimates.visible.any(-1, keepdim=True)
    underflowed = is_zero(denominator, features.signed) & sees
    clamped = ((denominator < estimates.floored) | underflowed).double().mean()
    negative = ((estimates.kernel < 0) & estimates.visible).sum() / estimates.visible.sum()
    return Diagnosis(float(clamped), float(negative), count)
