"""The plain sum S = sum_j w_j phi_k_j v_j^T with the denominator n = sum_j w_j phi_k_j.

w_j is a token's gate times all decays since it was written. The sums, their units and the policy
for signed denominators are those of `attention.sums`.
"""

import torch
from torch import Tensor

from attention.memory.decays import accumulated, later
from attention.memory.tokens import Written
from attention.products import exponential
from attention.running import running_max
from attention.sums import LinearAttentionState, absorb, initial_state


def write(
    state: LinearAttentionState, tokens: Written, log_decay: Tensor, signed: bool
) -> LinearAttentionState:
    """Decay by log_decay (...), then write L tokens."""
    state = state._replace(log_scale=state.log_scale + log_decay[..., None, None])
    if tokens.values.shape[-2] == 0:
        return state
    keys, log_scale, values, gates = tokens
    return absorb(state, keys, log_scale, values, signed, gates)


def write_frames(
    state: LinearAttentionState, tokens: Written, log_decay: Tensor, signed: bool
) -> LinearAttentionState:
    """Return the states after each of T frames, entries (..., T, ., .): T calls of `write` by
    products.

    tokens are (..., T, L, .) with L above 0, and log_decay is (..., T).
    """
    keys, log_scale, v, gates = tokens
    empty = initial_state(
        v.shape[:-2], keys.mantissa.shape[-1], v.shape[-1], dtype=v.dtype, device=v.device
    )
    own = absorb(empty, keys, log_scale, v, signed, gates)
    forgotten = log_decay.cumsum(-1)
    # As in `attention.causal`, the scale of a frame grows by all decays up to it.
    scale, before = own.log_scale[..., 0, 0] - forgotten, state.log_scale[..., 0]
    reference = torch.maximum(before.detach(), running_max(scale.detach(), -1))
    kept = exponential(before - reference)
    weights = exponential(scale.unsqueeze(-2) - reference.unsqueeze(-1) + later(v.shape[-3], scale))
    largest_value = torch.maximum(
        state.largest_value.unsqueeze(-3), running_max(own.largest_value, -3)
    )
    return LinearAttentionState(
        accumulated(state.values, own.values, kept, weights),
        accumulated(state.normaliser, own.normaliser, kept, weights),
        accumulated(state.mass, own.mass, kept, weights),
        largest_value,
        (reference + forgotten)[..., None, None],
    )
