"""Causal linear attention in chunks: a summed state for earlier chunks, a mask within the chunk.

Sums are kept in units of the largest key scale up to each query, by a running maximum, so that a
later key, however large, changes no earlier output by a bit. With forgetting, key j has the weight
d_{j+1} ... d_i at query i: within a chunk its log-scale grows by -log(d_1 ... d_j), and the chunk's
total is subtracted from the state's log-scale.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from attention.components import SCORE, component
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.joining import joined
from attention.norms import lengths
from attention.precision import full_precision
from attention.products import (
    Features,
    exponential,
    key_unit,
    rows_times_each,
    times,
)
from attention.relative import largest_entry
from attention.running import running_max
from attention.sums import LinearAttentionState, absorb, empty_state

CHUNK = 64
"""Chunk length on a CPU: within a chunk the quadratic form on the features is used."""
ACCELERATOR_CHUNK = 256
"""Chunk length on other devices, where kernel launches cost more than operations."""

KeyBlock = tuple[Features, Tensor, Tensor]
"""Features (..., C, F), log-scales (..., C, 1), values (..., C, dv) of C keys."""
QueryBlock = tuple[Features, Tensor | None]
"""Features (..., C, F) and log-floors (..., C, 1) or None of C queries."""


def chunk_rows(like: Tensor) -> int | None:
    """Return the chunk length for the device of `like` (..., L, .). None means a single chunk: a
    graph exported for any L has no loop over chunks and takes O(L^2)."""
    if not isinstance(like.shape[-2], int):
        return None
    return CHUNK if like.device.type == "cpu" else ACCELERATOR_CHUNK


def slices(length: int, rows: int | None) -> list[slice]:
    """Split into blocks of `rows` tokens. None gives one block of any length."""
    if rows is None:
        return [slice(None)]
    return [slice(start, start + rows) for start in range(0, max(length, 1), rows)]


def causal_blocks(
    queries: Iterable[QueryBlock],
    keys: Iterable[KeyBlock],
    signed: bool,
    state: LinearAttentionState | None = None,
    log_decays: Iterable[Tensor] | None = None,
) -> tuple[Tensor, LinearAttentionState]:
    """Return the outputs (..., L, dv) of all chunks in order and the final state.

    Args:
        state: the state of earlier tokens, or None if there are none.
        log_decays: (..., C, 1) for each chunk, the log of the factor by which each token multiplies
            the earlier sums.
    """
    outputs = []
    own, earlier = False, None
    decays = iter(log_decays) if log_decays is not None else None
    for (phi_q, log_floor), (phi_k, log_scale, v) in zip(queries, keys, strict=True):
        with component(SCORE), full_precision(v):
            if state is None:
                state, own = empty_state(phi_k.mantissa, v), True
            forgotten = None
            if decays is not None:
                forgotten = next(decays).cumsum(-2)
                log_scale = log_scale - forgotten
            if earlier is None or earlier.shape[0] < v.shape[-2]:
                earlier = v.new_ones(v.shape[-2], v.shape[-2]).tril()
            block = phi_k, log_scale, v
            outputs.append(_chunk(state, phi_q, log_floor, block, signed, forgotten, earlier))
            state = absorb(state, phi_k, log_scale, v, signed, own=own)
            own = True
            if forgotten is not None:
                state = state._replace(log_scale=state.log_scale + forgotten[..., -1:, :])
    assert state is not None
    return joined(outputs, -2), state


def _chunk(
    state: LinearAttentionState,
    queries: Features,
    log_floor: Tensor | None,
    keys: KeyBlock,
    signed: bool,
    forgotten: Tensor | None,
    earlier: Tensor,
) -> Tensor:
    """Return the outputs (..., C, dv) of one chunk.

    `forgotten` is the log of all decays up to each token; `earlier` (C or more, C or more) is 0
    where the key comes after the query, else 1.
    """
    phi_k, log_scale, v = keys
    size = v.shape[-2]
    running = running_max(log_scale.detach(), -2)
    reference = torch.maximum(state.log_scale.detach(), running)
    # At most 0 for keys up to the query. Exponentials of -inf would take ten times as long.
    exponents = (log_scale.mT - reference).clamp_max(0)
    decay = Features(exponents.exp() * earlier[:size, :size], exponents)
    kept = exponential(state.log_scale - reference)
    unit = key_unit(v.dtype, signed)
    shared = phi_k.mantissa if signed else times(phi_k, unit)
    weights, values, normaliser = rows_times_each(
        queries, shared.mT, state.values, state.normaliser.mT
    )
    weights = times(decay, weights)
    numerator = weights @ v + times(kept, values)
    denominator = weights.sum(-1, keepdim=True) + times(kept, normaliser)
    # A floor is in absolute units, so the growth of the scales is subtracted.
    absolute = reference if forgotten is None else reference + forgotten
    if not signed:
        return divide(numerator, raised(denominator, log_floor, absolute, unit=unit), signed)
    mass = times(kept, state.mass) + decay.mantissa @ lengths(phi_k.mantissa)
    floor = rounding_floor(lengths(queries.mantissa), mass)
    ratio = divide(numerator, raised(denominator, log_floor, absolute, floor), signed)
    running_value = running_max(largest_entry(v), -2)
    return bounded(ratio, torch.maximum(state.largest_value, running_value))
