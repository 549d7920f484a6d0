"""Causal attention over tokens that arrive over time, one or many at once, as in decoding.

The results equal `FeatureMap.attend` with causal=True. The state has a fixed size: the sums of
`attention.sums` and, for signed maps, the key statistics that the denominators' floor needs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.denominators import KeyStatistics
from attention.recurrent import advance
from attention.streaming import Prepared, StreamedMap, blocks, causal_form, prepared
from attention.sums import LinearAttentionState, initial_state
from attention.token_checks import without_queries


class DecodingState(NamedTuple):
    """Recurrent state; every entry has leading dimensions (...)."""

    sums: LinearAttentionState
    keys: KeyStatistics


def initial_decoding_state(
    features: StreamedMap,
    shape: tuple[int, ...],
    value_dim: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> DecodingState:
    """Return the state before the first token; `shape` is the leading dimensions, such as (batch,
    heads)."""
    sums = initial_state(shape, features.output_dim, value_dim, dtype=dtype, device=device)
    return DecodingState(
        sums, KeyStatistics(torch.zeros_like(sums.mass), torch.zeros_like(sums.mass))
    )


def decode(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    v: Tensor,
    state: DecodingState,
    key_mask: Tensor | None = None,
) -> tuple[Tensor, DecodingState]:
    """Add one key and value to the state, then compute the output of one query.

    x, y (..., 1, d), v (..., 1, dv) -> output (..., 1, dv) and the next state. key_mask (..., 1) is
    False where the token is padding, which does not change the state.

    Raises ValueError for tokens that the map does not support.
    """
    tokens = prepared(features, x, y, v, True, key_mask, state.keys)
    assert tokens is not None
    (query, key) = blocks(features, tokens, None)
    output, sums = advance(state.sums, next(query), next(key), features.signed)
    return output.to(v.dtype), DecodingState(sums, _seen(features, tokens, state))


def prefill(
    features: StreamedMap,
    x: Tensor,
    y: Tensor,
    v: Tensor,
    state: DecodingState,
    key_mask: Tensor | None = None,
) -> tuple[Tensor, DecodingState]:
    """`decode` for L tokens at once: x, y (..., L, d), v (..., L, dv) -> (..., L, dv) and next
    state.

    The results are the same, at the speed of `FeatureMap.attend`. key_mask is (..., L) as in
    `attend`.
    """
    tokens = prepared(features, x, y, v, True, key_mask, state.keys)
    if tokens is None:
        return without_queries(x, y, v), state
    output, sums = causal_form(features, tokens, state.sums)
    return output.to(v.dtype), DecodingState(sums, _seen(features, tokens, state))


def _seen(features: StreamedMap, tokens: Prepared, state: DecodingState) -> KeyStatistics:
    """Statistics of all keys so far, for signed maps only."""
    if not features.signed:
        return state.keys
    return KeyStatistics.of(tokens.y.to(tokens.values.dtype), tokens.visible, False).after(
        state.keys
    )
