"""Normalise given features to a size of about 1; their scale becomes a unit or cancels."""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.causal import KeyBlock, QueryBlock
from attention.joining import parts
from attention.precision import working_dtype
from attention.products import Features
from attention.relative import largest_entry
from attention.running import running_max


class ScaledTokens(NamedTuple):
    """Queries and keys with normalised features; masked keys are left out."""

    queries: Features
    log_floor: Tensor | None
    """(..., L, 1), log of the least denominator, for the normalised queries."""
    keys: Features
    log_scale: Tensor
    """(..., S, 1), -inf where a key is masked."""
    values: Tensor
    """(..., S, dv), zeros where a key is masked."""

    def query_blocks(self, rows: int | None) -> list[QueryBlock]:
        queries, floor = self.queries.parts(rows), self.log_floor
        floors = [None] * len(queries) if floor is None else parts(floor, rows, -2)
        return list(zip(queries, floors, strict=True))

    def key_blocks(self, rows: int | None) -> list[KeyBlock]:
        scales, values = parts(self.log_scale, rows, -2), parts(self.values, rows, -2)
        return list(zip(self.keys.parts(rows), scales, values, strict=True))


def scaled_tokens(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    key_mask: Tensor | None,
    key_log_scale: Tensor | None,
    log_floor: Tensor | None,
) -> ScaledTokens:
    """Normalise features (..., L, F), (..., S, F) and values (..., S, dv), as in
    `linear_attention`.

    Keys share one scale; for causal attention it is the running maximum, so that no output depends
    on later keys.
    """
    dtype = working_dtype(phi_q.dtype)
    phi_q, phi_k, values = phi_q.to(dtype), phi_k.to(dtype), v.to(dtype)
    hidden = None if key_mask is None else ~key_mask.unsqueeze(-1)
    if hidden is not None:
        phi_k, values = phi_k.masked_fill(hidden, 0), values.masked_fill(hidden, 0)
    # The gradient flows through the queries' scale, which removes the component along the features
    # that cancels.
    size = _size(phi_q)
    queries = Features(phi_q / size)
    if log_floor is not None:
        log_floor = log_floor - size.log()
    sizes = largest_entry(phi_k.detach())
    sizes = running_max(sizes, -2) if causal else sizes.amax(-2, keepdim=True).expand_as(sizes)
    sizes = sizes.masked_fill(sizes == 0, 1)
    log_scale = sizes.log()
    if key_log_scale is not None:
        log_scale = log_scale + key_log_scale.to(dtype)
    if hidden is not None:
        log_scale = log_scale.masked_fill(hidden, -torch.inf)
    return ScaledTokens(queries, log_floor, Features(phi_k / sizes), log_scale, values)


def _size(rows: Tensor) -> Tensor:
    """Return the largest entry of each row, or 1 for a row of zeros: (..., C, F) -> (..., C, 1)."""
    size = largest_entry(rows)
    return size.masked_fill(size == 0, 1)
