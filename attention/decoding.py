"""Causal attention one token at a time from tokens, as a robot or a decoder gets them.

The same numbers as `FeatureMap.attend` with causal=True, with a state of fixed size: the sums of
`attention.recurrent`, and for signed maps what their denominators' floor needs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.denominators import KeyStatistics, log_lower_bound
from attention.recurrent import LinearAttentionState, initial_state, step
from attention.streaming import StreamedMap


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
    features: StreamedMap, x: Tensor, y: Tensor, v: Tensor, state: DecodingState
) -> tuple[Tensor, DecodingState]:
    """Take in one key and value, then answer one query.

    x, y (..., 1, d), v (..., 1, dv) -> output (..., 1, dv) and the next state.

    Raises ValueError for tokens that the map refuses to attend with.
    """
    features.check_attended(x, y)
    phi_q, phi_k = features.scaled_queries(x), features.scaled_keys(y)
    keys, log_floor = state.keys, None
    if features.signed:
        dtype = phi_q.mantissa.dtype
        new = KeyStatistics.of(y.to(dtype), None, causal=False)
        keys = KeyStatistics(
            keys.keys + new.keys, torch.maximum(keys.largest_norm, new.largest_norm)
        )
        log_floor = log_lower_bound(features.kernel, x.to(dtype), keys) - phi_q.log_scale
        log_floor = log_floor.squeeze(-2)
    output, sums = step(
        state.sums,
        phi_q.mantissa.squeeze(-2),
        phi_k.mantissa.squeeze(-2),
        v.squeeze(-2),
        key_log_scale=phi_k.log_scale.squeeze(-2),
        log_floor=log_floor,
        signed=features.signed,
    )
    return output.unsqueeze(-2), DecodingState(sums, keys)
