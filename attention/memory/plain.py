"""The plain sum S = sum_j w_j phi_k_j v_j^T with the denominator n = sum_j w_j phi_k_j.

w_j is a token's gate times all decays since it was written. The sums, their units and the policy
for signed denominators are those of `attention.sums`.
"""

from torch import Tensor

from attention.decays import Factor
from attention.memory.tokens import Written
from attention.sums import LinearAttentionState, absorb, forgotten, running_sums


def write(
    state: LinearAttentionState, tokens: Written, before: Factor | None, signed: bool
) -> LinearAttentionState:
    """Multiply the sums by the factor, if there is one, then write L tokens."""
    if tokens.values.shape[-2] == 0:
        return state if before is None else forgotten(state, before)
    keys, log_scale, values, gates = tokens
    return absorb(state, keys, log_scale, values, signed, gates, factor=before)


def write_frames(
    state: LinearAttentionState, tokens: Written, decay: Tensor, signed: bool
) -> LinearAttentionState:
    """Return the states after each of T frames, entries (..., T, ., .): T calls of `write` by
    products.

    tokens are (..., T, L, .) with L above 0, and decay is (..., T).
    """
    keys, log_scale, v, gates = tokens
    return running_sums(state, keys, log_scale, v, signed, gates, decay)
