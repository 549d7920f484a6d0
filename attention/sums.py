"""The sums over keys of linear attention: S = sum phi_k v^T and n = sum phi_k.

out_i = (phi_q_i S) / (phi_q_i . n)  (Chefs' Random Tables section 2.1; Performers; linear
transformers). The sums are kept in units of the largest key scale so far, so that they cannot
overflow.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.denominators import bounded, divide, raised, rounding_floor
from attention.norms import lengths
from attention.precision import working_dtype
from attention.products import (
    Features,
    accumulated,
    exponential,
    key_unit,
    rows_times_each,
    sums_over_rows,
    sums_over_rows_each,
    times,
)
from attention.relative import largest_entry


class LinearAttentionState(NamedTuple):
    """Sums over the keys seen so far, in units of exp(log_scale) / `products.key_unit`."""

    values: Tensor
    """S (..., F, dv), sum of phi_k v^T."""
    normaliser: Tensor
    """n (..., 1, F), sum of phi_k; a row, since products with columns are several times slower than
    with rows."""
    mass: Tensor
    """(..., 1, 1), sum of |phi_k|_2, which bounds rounding errors; signed maps only."""
    largest_value: Tensor
    """(..., 1, 1), max |v|, unscaled, which bounds the output; signed maps only."""
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
    """Return the state before the first token.

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
        # Finite, so that the difference of the scales of two empty states is 0 and not NaN.
        like.new_full((*shape, 1, 1), 0.5 * torch.finfo(like.dtype).min),
    )


def empty_state(phi_k: Tensor, v: Tensor) -> LinearAttentionState:
    """Return an initial state for keys (..., C, F) and values (..., C, dv)."""
    shape = torch.broadcast_shapes(phi_k.shape[:-2], v.shape[:-2])
    return initial_state(
        shape, phi_k.shape[-1], v.shape[-1], dtype=working_dtype(v.dtype), device=v.device
    )


def absorb(
    state: LinearAttentionState,
    keys: Features,
    log_scale: Tensor,
    v: Tensor,
    signed: bool,
    gates: Tensor | None = None,
    own: bool = False,
) -> LinearAttentionState:
    """Return the state after adding keys (..., C, F), log-scales (..., C, 1) and values (..., C,
    dv).

    gates (..., C, 1) multiply the key features. Unlike log-scales they may be 0 and have a gradient
    there. own: whether the memory of the state may be reused.
    """
    mass, largest_value = state.mass, state.largest_value
    # Units are constants for gradients: the unit of the result cancels in every output.
    reference = torch.maximum(state.log_scale.detach(), log_scale.detach().amax(-2, keepdim=True))
    kept = exponential(state.log_scale - reference)
    weight = times(exponential(log_scale - reference), key_unit(v.dtype, signed))
    if gates is not None:
        weight = weight * gates
    if signed:
        largest_value = torch.maximum(largest_value, largest_entry(v).amax(-2, keepdim=True))
        mass = times(kept, mass) + (lengths(keys.mantissa) * weight).sum(-2, keepdim=True)
    # The weight is applied to the dv columns of v, not to the F columns of phi_k, for fewer
    # operations.
    weighted = v * weight
    if torch.is_grad_enabled():
        of_values, of_weights = sums_over_rows_each(keys, weighted, weight)
        values = times(kept, state.values) + of_values
    else:
        values = accumulated(state.values, kept, keys, weighted, own=own)
        of_weights = sums_over_rows(keys, weight)
    normaliser = times(kept, state.normaliser) + of_weights.mT
    return LinearAttentionState(values, normaliser, mass, largest_value, reference)


def read(
    state: LinearAttentionState,
    queries: Features,
    log_floor: Tensor | None,
    signed: bool,
    share: float = 0.0,
) -> Tensor:
    """Attention of queries (..., C, F) over all keys in the state: (..., C, dv).

    share: for signed maps, the least denominator as a share of the largest possible one.
    """
    numerator, denominator = rows_times_each(queries, state.values, state.normaliser.mT)
    log_scale = state.log_scale.detach()
    if not signed:
        unit = key_unit(numerator.dtype, signed)
        return divide(numerator, raised(denominator, log_floor, log_scale, unit=unit), signed)
    floor = rounding_floor(lengths(queries.mantissa), state.mass, share)
    denominator = raised(denominator, log_floor, log_scale, floor)
    return bounded(divide(numerator, denominator, signed), state.largest_value)
