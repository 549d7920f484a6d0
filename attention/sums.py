"""The sums over keys of linear attention: S = sum phi_k v^T and n = sum phi_k.

out_i = (phi_q_i S) / (phi_q_i . n)  (Chefs' Random Tables section 2.1; Performers; linear
transformers). The sums are kept in units of the largest key scale so far, so that they cannot
overflow.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.decays import LARGEST, Decays, Factor
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.norms import lengths
from attention.onednn import matmul
from attention.precision import lowest, working_dtype
from attention.products import (
    Features,
    accumulated,
    exponential,
    gated_rows_times,
    key_unit,
    rows_times_each,
    sums_over_rows,
    sums_over_rows_each,
    times,
)
from attention.relative import largest_entry
from attention.running import running_max

BLOCKS = 128
"""Number of blocks of keys that are added to one sum."""
TOGETHER = 16
"""Number of chunks whose sums are in memory at once."""
TOKENS = 64
"""Number of keys of a block, of which `absorb_chunks` adds several at once."""


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
    values = torch.zeros((*shape, num_features, value_dim), dtype=dtype, device=device)
    return LinearAttentionState(
        values,
        values.new_zeros(*shape, 1, num_features),
        values.new_zeros(*shape, 1, 1),
        values.new_zeros(*shape, 1, 1),
        values.new_full((*shape, 1, 1), lowest(values.dtype)),
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
    factor: Factor | None = None,
) -> LinearAttentionState:
    """Return the state after adding keys (..., C, F), log-scales (..., C, 1) and values (..., C,
    dv).

    gates (..., C, 1) multiply the key features. Unlike log-scales they may be 0 and have a gradient
    there. own: whether the memory of the state may be reused. factor: the decay of the state before
    the keys are added.
    """
    mass, largest_value = state.mass, state.largest_value
    before = state.log_scale if factor is None else factor.after(state.log_scale)
    # Units are constants for gradients: the unit of the result cancels in every output.
    reference = torch.maximum(before.detach(), log_scale.detach().amax(-2, keepdim=True))
    kept = exponential(before - reference)
    if factor is not None:
        decayed = state.log_scale + factor.log_scale
        kept = exponential((decayed - reference).clamp_max(LARGEST))
        if not torch.is_grad_enabled():
            kept, factor = Features(kept.mantissa * factor.mantissa), None
    weight = times(exponential(log_scale - reference), key_unit(v.dtype, signed))
    if gates is not None:
        weight = weight * gates
    if signed:
        largest_value = torch.maximum(largest_value, largest_entry(v).amax(-2, keepdim=True))
        mass = _decayed(kept, factor, mass) + (lengths(keys.mantissa) * weight).sum(
            -2, keepdim=True
        )
    # The weight is applied to the dv columns of v, not to the F columns of phi_k, for fewer
    # operations.
    weighted = v * weight
    if torch.is_grad_enabled():
        of_values, of_weights = sums_over_rows_each(keys, weighted, weight)
        values = _decayed(kept, factor, state.values) + of_values
    else:
        values = accumulated(state.values, kept, keys, weighted, own=own)
        of_weights = sums_over_rows(keys, weight)
    normaliser = _decayed(kept, factor, state.normaliser) + of_weights.mT
    return LinearAttentionState(values, normaliser, mass, largest_value, reference)


def added(state: LinearAttentionState, other: LinearAttentionState) -> LinearAttentionState:
    """Return the sums over the keys of both states."""
    reference = torch.maximum(state.log_scale, other.log_scale).detach()
    kept, more = (exponential(one.log_scale - reference) for one in (state, other))
    return LinearAttentionState(
        times(kept, state.values) + times(more, other.values),
        times(kept, state.normaliser) + times(more, other.normaliser),
        times(kept, state.mass) + times(more, other.mass),
        torch.maximum(state.largest_value, other.largest_value),
        reference,
    )


class LongSum:
    """Sums over any number of blocks of keys.

    The most recent blocks have separate sums, since the rounding errors of N additions to one sum
    grow with N.

    Args:
        state: the sums before the first block.
        own: whether the memory of this state may be reused.
    """

    def __init__(self, state: LinearAttentionState, own: bool) -> None:
        self._recent, self._own, self._blocks = state, own, 0
        self._earlier: LinearAttentionState | None = None

    def absorb(
        self,
        keys: Features,
        log_scale: Tensor,
        v: Tensor,
        signed: bool,
        gates: Tensor | None = None,
        factor: Factor | None = None,
    ) -> None:
        """Add a block; arguments as in `absorb`."""
        if self._blocks == BLOCKS:
            self._begin(self.total)
        if self._earlier is not None and factor is not None:
            self._earlier = forgotten(self._earlier, factor)
        self._recent = absorb(
            self._recent, keys, log_scale, v, signed, gates, own=self._own, factor=factor
        )
        self._own = True
        self._blocks += 1

    def absorb_chunks(
        self, queries: Tensor, keys: Tensor, log_scale: Tensor, v: Tensor, signed: bool
    ) -> tuple[Tensor, LinearAttentionState]:
        """Read the sums before each of T chunks of N sequences and add its keys, without gradients.

        Features of queries and keys (N, T, C, F), log-scales (N, T, C, 1), values (N, T, C, dv) ->
        products (N, T, C, dv) of the queries with the sums of values before their chunk, in units
        of the returned states before all chunks, entries (N, T, ., .), which have no values.
        """
        if self._blocks >= BLOCKS:
            self._begin(self.total)
        state, count = self._recent, v.shape[1]
        latest = running_max(log_scale.amax(-2, keepdim=True), 1)
        ends = torch.maximum(latest, state.log_scale.unsqueeze(1))
        scales = torch.cat((state.log_scale.unsqueeze(1), ends), 1)
        starts = scales[:, :-1]
        weight = (log_scale - ends).exp() * key_unit(v.dtype, signed)
        values = state.values if self._own else state.values.clone()
        products, weighted = torch.empty_like(v), v * weight
        of_sequences = queries, keys.mT, weighted, (starts - ends).exp(), products, values
        # The sums before some chunks, which fit the cache: their own sums, to which those of
        # earlier ones are added.
        buffer = values.new_empty(min(TOGETHER, count) + 1, *values.shape[1:])
        for *of_chunks, total in zip(*of_sequences, strict=True):
            parts = zip(*(t.split(TOGETHER) for t in of_chunks), strict=True)
            for phi_q, phi_k, given, kept, out in parts:
                sums = buffer[: len(out) + 1].unbind(0)
                sums[0].copy_(total)
                torch.bmm(phi_k, given, out=buffer[1 : len(sums)])
                for past, now, factor in zip(sums, sums[1:], kept.unbind(0), strict=False):
                    now.addcmul_(past, factor)
                torch.bmm(phi_q, buffer[: len(out)], out=out)
                total.copy_(sums[-1])
        # The other sums are small: products with the factors between the ends of any two chunks.
        factors = (scales.flatten(1).unsqueeze(1) - scales.flatten(1).unsqueeze(2)).clamp_max_(0)
        factors = factors.exp_().tril_()

        def summed(first: Tensor, others: Tensor) -> Tensor:
            return (factors @ torch.cat((first, others.flatten(2)), 1)).unsqueeze(-2)

        normaliser = summed(state.normaliser, weight.mT @ keys)
        mass = state.mass.unsqueeze(1).expand(-1, count + 1, 1, 1)
        largest_value = state.largest_value.unsqueeze(1).expand(-1, count + 1, 1, 1)
        if signed:
            mass = summed(state.mass, (lengths(keys) * weight).sum(-2, keepdim=True))
            largest = largest_entry(v).amax(-2, keepdim=True)
            largest_value = running_max(torch.cat((largest_value[:, :1], largest), 1), 1)
        small = normaliser, mass, largest_value, scales
        self._recent = LinearAttentionState(values, *(entry[:, -1] for entry in small))
        self._own = True
        self._blocks += max(1, log_scale.shape[1:3].numel() // TOKENS)
        nothing = values[:, None, :0]
        before = LinearAttentionState(nothing, *(entry[:, :-1] for entry in small))
        if self._earlier is None:
            return products, before
        share = (self._earlier.log_scale.unsqueeze(1) - starts).exp()
        products += matmul(queries.flatten(1, 2), self._earlier.values).view_as(v) * share
        earlier = self._earlier._replace(values=nothing[:, 0])
        earlier = LinearAttentionState(*(entry.unsqueeze(1) for entry in earlier))
        return products, added(earlier, before)

    def _begin(self, total: LinearAttentionState) -> None:
        """Start another sum for recent blocks, in the same units."""
        self._earlier, self._blocks, self._own = total, 0, True
        empty = LinearAttentionState(*map(torch.zeros_like, total))
        self._recent = empty._replace(log_scale=total.log_scale)

    @property
    def total(self) -> LinearAttentionState:
        """The sums over all blocks."""
        return self._recent if self._earlier is None else added(self._earlier, self._recent)


def forgotten(state: LinearAttentionState, factor: Factor) -> LinearAttentionState:
    """Return the state after a decay."""
    return LinearAttentionState(
        state.values * factor.mantissa,
        state.normaliser * factor.mantissa,
        state.mass * factor.mantissa,
        state.largest_value,
        factor.after(state.log_scale),
    )


def running_sums(
    state: LinearAttentionState,
    keys: Features,
    log_scale: Tensor,
    v: Tensor,
    signed: bool,
    gates: Tensor | None,
    decay: Tensor,
) -> LinearAttentionState:
    """Return the states after each of T blocks of keys, entries (..., T, ., .), by products.

    Keys and gates are those of `absorb` with dimensions (..., T, C, .); decay (..., T) multiplies
    the sums before each block.
    """
    own = absorb(empty_state(keys.mantissa, v), keys, log_scale, v, signed, gates)
    decays = Decays.of(decay.unsqueeze(-1))
    weights, kept, reference = decays.weights(own.log_scale[..., 0], state.log_scale)
    before = kept.changed(lambda t: t.unsqueeze(-1))
    started = decays.before.unsqueeze(-1)

    def after(earlier: Tensor, added: Tensor) -> Tensor:
        sums = gated_rows_times(weights, decays.within, added.flatten(-2))
        return times(before, earlier.unsqueeze(-3)) * started + sums.unflatten(-1, added.shape[-2:])

    largest_value = running_max(own.largest_value, -3)
    return LinearAttentionState(
        after(state.values, own.values),
        after(state.normaliser, own.normaliser),
        after(state.mass, own.mass),
        torch.maximum(state.largest_value.unsqueeze(-3), largest_value),
        reference.unsqueeze(-1),
    )


def _decayed(kept: Features, factor: Factor | None, sums: Tensor) -> Tensor:
    """Return earlier sums in new units; the mantissa comes last, as gradients underflow before."""
    sums = times(kept, sums)
    return sums if factor is None else sums * factor.mantissa


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
