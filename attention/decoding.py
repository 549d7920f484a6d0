"""Causal attention from tokens as they come, as a robot or a decoder gets them: one, or many.

The same numbers as `FeatureMap.attend` with causal=True, with a state of fixed size: the sums of
`attention.sums`, and for signed maps what their denominators' floor needs.
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
    """What is carried from token to token; every entry has leading dimensions (...)."""

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
    """The state before the first token; `shape` is the leading dimensions, as (batch, heads)."""
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
    """Take in one key and value, then answer one query.

    x, y (..., 1, d), v (..., 1, dv) -> output (..., 1, dv) and the next state. key_mask (..., 1) is
    False where the token is padding, which leaves the state as it is.

    Raises ValueError for tokens that the map refuses to attend with.
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
    """`decode` for L tokens at once: x, y (..., L, d), v (..., L, dv) -> (..., L, dv), next state.

    The same numbers, at the speed of `FeatureMap.attend`. key_mask (..., L) as there.
    """
    tokens = prepared(features, x, y, v, True, key_mask, state.keys)
    if tokens is None:
        return without_queries(x, y, v), state
    output, sums = causal_form(features, tokens, state.sums)
    return output.to(v.dtype), DecodingState(sums, _seen(features, tokens, state))


def _seen(features: StreamedMap, tokens: Prepared, state: DecodingState) -> KeyStatistics:
    """Statistics of all keys so far; signed maps only."""
    if not features.signed:
        return state.keys
    return KeyStatistics.of(tokens.y.to(tokens.values.dtype), tokens.visible, False).after(
        state.keys
    )
