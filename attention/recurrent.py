"""Causal linear attention with a state of fixed size, one token at a time or many at once.

S_i = d_i S_{i-1} + phi_k_i v_i^T and n_i = d_i n_{i-1} + phi_k_i, out_i = (phi_q_i S_i) / (phi_q_i
. n_i)  (Chefs' Random Tables section 2.1; Performers; linear transformers). d_i = 1 forgets
nothing; with d_i below 1 the weight of earlier keys decays, as in gated linear attention, and 0
begins a new sequence, as in packed sequences and at the begin of an episode. `prefill`
processes a prompt at the speed of `linear_attention`, `step` the tokens that follow.
"""

import torch
from torch import Tensor

from attention.causal import CHUNK, causal_blocks, chunk_rows
from attention.components import SCORE, component
from attention.decays import Factor, check_decay, factor
from attention.joining import parts
from attention.precision import full_precision
from attention.products import Features
from attention.scales import scaled_tokens
from attention.sums import LinearAttentionState, absorb, initial_state, read
from attention.token_checks import check_features, check_tokens, without_queries

__all__ = ["LinearAttentionState", "advance", "initial_state", "prefill", "step"]


def prefill(
    state: LinearAttentionState,
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    decay: float | Tensor | None = None,
    key_log_scale: Tensor | None = None,
    log_floor: Tensor | None = None,
    signed: bool = False,
) -> tuple[Tensor, LinearAttentionState]:
    """Process L tokens by the causal form, starting from `state`.

    phi_q, phi_k (..., L, F), v (..., L, dv) -> outputs (..., L, dv) and the next state. The results
    equal L calls of `step` and, from an initial state, `linear_attention` with causal=True.

    Args:
        state: from `initial_state`, `step` or `prefill`, with the same `signed`.
        key_mask, key_log_scale, log_floor, signed: as in `linear_attention`. A masked token does
            not change the state.
        decay: d, from 0 to 1: a number, or (..., L, 1) for each token; default 1.

    Raises:
        ValueError: as `linear_attention`, and for a decay out of range.
    """
    check_tokens(phi_q, phi_k, v, True, key_mask, ("phi_q", "phi_k"))
    check_features(phi_q, phi_k)
    if phi_q.shape[-2] == 0:
        return without_queries(phi_q, phi_k, v), state
    tokens = scaled_tokens(
        phi_q,
        phi_k,
        v,
        causal=True,
        key_mask=key_mask,
        key_log_scale=key_log_scale,
        log_floor=log_floor,
    )
    rows = chunk_rows(phi_q)
    decays = None
    if decay is not None:
        rows = None if rows is None else CHUNK
        decays = parts(_factors(decay, tokens.log_scale, key_mask), rows, -2)
    output, state = causal_blocks(
        tokens.query_blocks(rows), tokens.key_blocks(rows), signed, state, decays
    )
    return output.to(v.dtype), state


def step(
    state: LinearAttentionState,
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    decay: float | Tensor | None = None,
    key_log_scale: Tensor | None = None,
    log_floor: Tensor | None = None,
    signed: bool = False,
) -> tuple[Tensor, LinearAttentionState]:
    """Add one key and value to the state, then compute the output of one query.

    phi_q, phi_k (..., F), v (..., dv) -> output (..., dv) and the next state. No control flow
    depends on data, so `torch.export` supports it.

    Args:
        state: from `initial_state`, `step` or `prefill`, with the same `signed`.
        key_mask: boolean (...), False where the token is padding. Padding does not change the
            state, and its query attends to the earlier keys.
        decay: d, from 0 to 1, the factor of the sums of earlier keys: a number or (..., 1).
        key_log_scale: (..., 1), the key features are phi_k * exp(key_log_scale); default 0.
        log_floor, signed: (..., 1) and whether features are signed, as in `linear_attention`.

    Raises:
        ValueError: for a mask that is not boolean or a decay out of range.
    """
    if key_mask is not None and key_mask.dtype != torch.bool:
        raise ValueError(f"key_mask must be a bool tensor, got {key_mask.dtype}")
    phi_q, phi_k, values = (t.to(state.values.dtype).unsqueeze(-2) for t in (phi_q, phi_k, v))
    mask = None if key_mask is None else key_mask.unsqueeze(-1)
    tokens = scaled_tokens(
        phi_q,
        phi_k,
        values,
        causal=True,
        key_mask=mask,
        key_log_scale=None if key_log_scale is None else key_log_scale.unsqueeze(-2),
        log_floor=None if log_floor is None else log_floor.unsqueeze(-2),
    )
    forgetting = None
    if decay is not None:
        if isinstance(decay, Tensor):
            decay = decay.unsqueeze(-2)
        forgetting = factor(_factors(decay, tokens.log_scale, mask))
    output, state = advance(
        state,
        (tokens.queries, tokens.log_floor),
        (tokens.keys, tokens.log_scale, tokens.values),
        signed,
        forgetting,
    )
    return output.squeeze(-2).to(v.dtype), state


def advance(
    state: LinearAttentionState,
    query: tuple[Features, Tensor | None],
    key: tuple[Features, Tensor, Tensor],
    signed: bool,
    forgetting: Factor | None = None,
) -> tuple[Tensor, LinearAttentionState]:
    """Like `step`, for features with scales and with a token dimension of size 1: (..., 1, dv)."""
    phi_k, log_scale, values = key
    with component(SCORE), full_precision(values):
        state = absorb(state, phi_k, log_scale, values, signed, factor=forgetting)
        return read(state, *query, signed), state


def _factors(decay: float | Tensor, like: Tensor, key_mask: Tensor | None) -> Tensor:
    """Return the decay of each token, with the dtype of `like` (..., L, 1); 1 where a token is
    masked."""
    check_decay(decay)
    factors = torch.as_tensor(decay, dtype=like.dtype, device=like.device)
    factors = factors.expand(torch.broadcast_shapes(factors.shape, like.shape))
    return factors if key_mask is None else factors.masked_fill(~key_mask.unsqueeze(-1), 1)
