"""Linear attention one token at a time, with a state of fixed size.

S_i = S_{i-1} + phi_k_i v_i^T and n_i = n_{i-1} + phi_k_i, out_i = (phi_q_i S_i) / (phi_q_i . n_i)
(Chefs' Random Tables section 2.1; Performers; linear transformers). The sums are kept in units of
the largest key scale so far, which only grows, so they cannot overflow however large a key is.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.components import SCORE, component
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.precision import full_precision, working_dtype


class LinearAttentionState(NamedTuple):
    """Sums over the keys seen so far, in units of exp(log_scale)."""

    values: Tensor
    """S (..., F, dv), sum of phi_k v^T."""
    normaliser: Tensor
    """n (..., 1, F), sum of phi_k; a row, since products with columns are several times slower."""
    mass: Tensor
    """(..., 1, 1), sum of |phi_k|_2: what rounding errors are measured by; signed maps only."""
    largest_value: Tensor
    """(..., 1, 1), max |v|, in its own unit: bound of the output; signed maps only."""
    log_scale: Tensor
    """(..., 1, 1)"""


def initial_state(
    shape: tuple[int, ...],
    num_features: int,
    value_dim: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> LinearAttentionState:
    """The state before the first token.

    Args:
        shape: leading dimensions, for example (batch, heads).
        num_features: F, length of a feature vector.
        value_dim: dv.
        dtype: float32 or float64; default PyTorch's.
    """
    like = torch.zeros((*shape, 1, 1), dtype=dtype, device=device)
    return LinearAttentionState(
        like.new_zeros(*shape, num_features, value_dim),
        like.new_zeros(*shape, 1, num_features),
        like,
        like,
        # Finite, so that the difference of two empty states' scales is 0 and not NaN.
        like.new_full((*shape, 1, 1), 0.5 * torch.finfo(like.dtype).min),
    )


def absorb(
    state: LinearAttentionState,
    phi_k: Tensor,
    log_scale: Tensor | None,
    v: Tensor,
    signed: bool,
) -> LinearAttentionState:
    """The state after more keys (..., C, F), log-scales (..., C, 1) and values (..., C, dv).

    Without log-scales the sums are plain ones: state.log_scale must then be 0.
    """
    transposed = phi_k.mT
    mass, largest_value = state.mass, state.largest_value
    if signed:
        largest_value = torch.maximum(largest_value, largest_entry(v).amax(-2, keepdim=True))
    if log_scale is None:
        values = state.values + transposed @ v
        normaliser = state.normaliser + phi_k.sum(-2, keepdim=True)
        if signed:
            mass = mass + lengths(phi_k).sum(-2, keepdim=True)
        return LinearAttentionState(values, normaliser, mass, largest_value, state.log_scale)
    reference = torch.maximum(state.log_scale, log_scale.detach().amax(-2, keepdim=True))
    kept = (state.log_scale - reference).exp()
    weight = (log_scale - reference).exp()
    # The weight goes to the dv columns of v, not to the F columns of phi_k: fewer operations.
    values = state.values * kept + transposed @ (v * weight)
    normaliser = state.normaliser * kept + weight.mT @ phi_k
    if signed:
        mass = mass * kept + (lengths(phi_k) * weight).sum(-2, keepdim=True)
    return LinearAttentionState(values, normaliser, mass, largest_value, reference)


def read(
    state: LinearAttentionState, phi_q: Tensor, log_floor: Tensor | None, signed: bool
) -> Tensor:
    """Attention of queries (..., C, F) over all keys in the state: (..., C, dv)."""
    numerator = phi_q @ state.values
    denominator = (state.normaliser @ phi_q.mT).mT
    if not signed:
        return divide(numerator, raised(denominator, log_floor, state.log_scale))
    floor = rounding_floor(lengths(phi_q), state.mass)
    denominator = raised(denominator, log_floor, state.log_scale, floor)
    return bounded(divide(numerator, denominator), state.largest_value)


def step(
    state: LinearAttentionState,
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    key_log_scale: Tensor | None = None,
    log_floor: Tensor | None = None,
    signed: bool = False,
) -> tuple[Tensor, LinearAttentionState]:
    """Take in one key and value, then answer one query: the causal form, a token at a time.

    phi_q, phi_k (..., F), v (..., dv) -> output (..., dv) and the next state. No control flow
    depends on data, so that `torch.export` takes it.

    Args:
        state: from `initial_state` or the last step.
        key_log_scale: (..., 1), the key's features are phi_k * exp(key_log_scale); default 0.
        log_floor, signed: (..., 1) and whether features are signed, as in `linear_attention`.
    """
    dtype = state.values.dtype
    phi_q, phi_k, values = (t.to(dtype).unsqueeze(-2) for t in (phi_q, phi_k, v))
    if key_log_scale is None:
        key_log_scale = phi_k.new_zeros(1)
    floor = None if log_floor is None else log_floor.unsqueeze(-2)
    with component(SCORE), full_precision(phi_q):
        state = absorb(state, phi_k, key_log_scale.to(dtype).unsqueeze(-2), values, signed)
        output = read(state, phi_q, floor, signed)
    return output.squeeze(-2).to(v.dtype), state


def empty_state(phi_k: Tensor, v: Tensor, scaled: bool) -> LinearAttentionState:
    """An initial state for keys (..., C, F) and values (..., C, dv)."""
    shape = torch.broadcast_shapes(phi_k.shape[:-2], v.shape[:-2])
    state = initial_state(
        shape, phi_k.shape[-1], v.shape[-1], dtype=working_dtype(v.dtype), device=v.device
    )
    return state if scaled else state._replace(log_scale=torch.zeros_like(state.log_scale))


def lengths(rows: Tensor) -> Tensor:
    """|.|_2 of each row: (..., C, F) -> (..., C, 1)."""
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True)


def largest_entry(rows: Tensor) -> Tensor:
    """max |.| of each row: (..., C, F) -> (..., C, 1)."""
    return rows.abs().amax(-1, keepdim=True)
