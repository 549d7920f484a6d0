"""Causal linear attention in chunks: a summed state for earlier chunks, a mask within the chunk.

Sums are kept in units of the largest key scale up to each query, by a running maximum, so that a
later key, however large, changes no earlier output by a bit. With forgetting, key j has the weight
d_{j+1} ... d_i at query i (`attention.decays`).
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional

from attention.components import SCORE, component
from attention.decays import Decays, Weights
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.joining import joined
from attention.norms import lengths
from attention.precision import full_precision
from attention.products import (
    LOG2_E,
    Features,
    exponential,
    key_unit,
    rows_times_each,
    times,
)
from attention.relative import largest_entry
from attention.running import running_max
from attention.sums import LinearAttentionState, LongSum, empty_state, running_sums
from attention.tracing import is_exporting, may_write

CHUNK = 64
"""Chunk length on a CPU: within a chunk the quadratic form on the features is used."""
ACCELERATOR_CHUNK = 256
"""Chunk length on other devices, where kernel launches cost more than operations."""

KeyBlock = tuple[Features, Tensor, Tensor]
"""Features (..., C, F), log-scales (..., C, 1), values (..., C, dv) of C keys."""
QueryBlock = tuple[Features, Tensor | None]
"""Features (..., C, F) and log-floors (..., C, 1) or None of C queries."""


def chunk_rows(like: Tensor) -> int | None:
    """Return the chunk length for the device of `like` (..., L, .). None means a single block.

    A graph exported for any L has no loop over chunks and takes O(L^2). A compiled graph processes
    all chunks together (`_all_chunks`), so that one graph serves many lengths; with gradients,
    which Inductor of PyTorch 2.13 and 2.14 gets wrong there, it unrolls the loop.
    """
    if not isinstance(like.shape[-2], int):
        return None
    learns = torch.is_grad_enabled() and like.requires_grad
    if is_compiling() and not is_exporting() and not learns:
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
    decays: Iterable[Tensor] | None = None,
    *,
    at_once: bool = False,
) -> tuple[Tensor, LinearAttentionState]:
    """Return the outputs (..., L, dv) of all chunks in order and the final state.

    Args:
        at_once: whether blocks (N, C, .) are divided into chunks that are processed together,
            without decays and gradients.
        state: the state of earlier tokens, or None if there are none.
        decays: (..., C, 1) for each chunk, the factor from 0 to 1 by which each token multiplies
            the earlier sums.
    """
    if decays is None and is_compiling() and not is_exporting():
        queries, keys = tuple(queries), tuple(keys)
        if len(queries) == 1:
            (phi_q, log_floor), (phi_k, log_scale, v) = queries[0], keys[0]
            with component(SCORE), full_precision(v):
                start = empty_state(phi_k.mantissa, v) if state is None else state
                return _all_chunks(start, phi_q, log_floor, (phi_k, log_scale, v), signed)
    outputs: list[Tensor] = []
    sums = earlier = None
    factors = iter(decays) if decays is not None else None
    for (phi_q, log_floor), (phi_k, log_scale, v) in zip(queries, keys, strict=True):
        with component(SCORE), full_precision(v):
            if sums is None:
                empty = state is None
                sums = LongSum(
                    empty_state(phi_k.mantissa, v) if state is None else state, own=empty
                )
            if at_once:
                given = (phi_q, log_floor), (phi_k, log_scale, v)
                outputs += [_chunks(sums, *given, signed, part) for part in _evenly(v.shape[-2])]
                continue
            state = sums.total
            decay = None if factors is None else Decays.of(next(factors))
            if decay is not None:
                weights = decay.weights(log_scale, state.log_scale)
            else:
                if earlier is None or earlier.shape[0] < v.shape[-2]:
                    earlier = v.new_ones(v.shape[-2], v.shape[-2]).tril()
                weights = _weights(state, log_scale, earlier)
            block = phi_k, weights, v
            outputs.append(_chunk(state, phi_q, log_floor, block, signed, decay))
            gates, end = None, None
            if decay is not None:
                log_scale, gates, end = decay.at_end(log_scale)
            sums.absorb(phi_k, log_scale, v, signed, gates, end)
    assert sums is not None
    return joined(outputs, -2), sums.total


SHORT_CHUNK = 32
"""Chunk length where chunks are processed together."""


def _evenly(length: int) -> Iterator[tuple[int, int, int]]:
    """Yield the start, the number and the length of chunks of a block; the rest is one chunk."""
    whole = length - length % SHORT_CHUNK
    if whole:
        yield 0, whole // SHORT_CHUNK, SHORT_CHUNK
    if whole < length:
        yield whole, 1, length - whole


def _chunks(
    sums: LongSum, queries: QueryBlock, keys: KeyBlock, signed: bool, part: tuple[int, int, int]
) -> Tensor:
    """Return the outputs of `part` of a block and add its keys to the sums, with few operations for
    any number of chunks."""
    start, count, size = part

    def chunks(tokens: Tensor) -> Tensor:
        return tokens.narrow(1, start, count * size).unflatten(1, (count, size))

    (phi_q, log_floor), (phi_k, log_scale, v) = queries, keys
    phi_q, phi_k = phi_q.changed(chunks), phi_k.changed(chunks)
    log_scale, v = chunks(log_scale), chunks(v)
    read = sums.absorb_chunks(phi_q.mantissa, phi_k.mantissa, log_scale, v, signed)
    weights = _weights(read[1], log_scale, v.new_ones(size, size).tril())
    floors = None if log_floor is None else chunks(log_floor)
    return _chunk(read[1], phi_q, floors, (phi_k, weights, v), signed, None, read[0]).flatten(1, 2)


def _all_chunks(
    state: LinearAttentionState,
    queries: Features,
    log_floor: Tensor | None,
    keys: KeyBlock,
    signed: bool,
) -> tuple[Tensor, LinearAttentionState]:
    """Return what `causal_blocks` does, from the states before all chunks at once."""
    phi_k, log_scale, v = keys
    length = v.shape[-2]
    rows = next((rows for rows in _COMPILED if length <= rows * rows), _COMPILED[-1])
    count = length // rows + 1
    missing = count * rows - length

    def chunks(tokens: Tensor, filled: float = 0.0) -> Tensor:
        padded = functional.pad(tokens, (0, 0, 0, missing), value=filled)
        return padded.unflatten(-2, (count, rows))

    phi_q, phi_k = queries.changed(chunks), phi_k.changed(chunks)
    log_scale, v = chunks(log_scale, -torch.inf), chunks(v)
    floors = None if log_floor is None else chunks(log_floor)
    after = running_sums(state, phi_k, log_scale, v, signed, None, v.new_ones(v.shape[:-2]))
    before = LinearAttentionState(
        *(
            torch.cat((first.unsqueeze(-3), rest[..., :-1, :, :]), -3)
            for first, rest in zip(state, after, strict=True)
        )
    )
    weights = _weights(before, log_scale, v.new_ones(rows, rows).tril())
    outputs = _chunk(before, phi_q, floors, (phi_k, weights, v), signed, None)
    last = LinearAttentionState(*(entry[..., -1, :, :] for entry in after))
    return outputs.flatten(-3, -2)[..., :length, :], last


_COMPILED = (64, 256, 1024)
"""Chunk lengths of compiled graphs: the smallest whose square is at least L."""


def _weights(state: LinearAttentionState, log_scale: Tensor, earlier: Tensor) -> Weights:
    """Return the weights of keys with log-scales (..., C, 1), and of the state, at each query.

    `earlier` (C or more, C or more) is 0 where the key comes after the query, else 1.
    """
    size = log_scale.shape[-2]
    running = running_max(log_scale.detach(), -2)
    reference = torch.maximum(state.log_scale.detach(), running)
    # At most 0 for keys up to the query; others are cut, at 1, since the gradient of `clamp_max` at
    # the bound itself differs between versions of PyTorch. Exponentials of -inf would be slow.
    exponents = (log_scale.mT - reference).clamp_max(1)
    kept = exponential(state.log_scale - reference)
    if may_write(exponents, state.log_scale):
        inside = exponents.mul_(LOG2_E).exp2_().mul_(earlier[:size, :size])
        return Weights(Features(inside), kept, reference)
    tokens = Features(exponents.exp() * earlier[:size, :size], exponents)
    return Weights(tokens, kept, reference)


def _chunk(
    state: LinearAttentionState,
    queries: Features,
    log_floor: Tensor | None,
    keys: tuple[Features, Weights, Tensor],
    signed: bool,
    decay: Decays | None,
    products: Tensor | None = None,
) -> Tensor:
    """Return the outputs (..., C, dv) of one chunk. `products` are those of the queries with the
    values of the state, if these are known."""
    phi_k, (tokens, kept, reference), v = keys
    unit = key_unit(v.dtype, signed)
    shared = phi_k.mantissa if signed else times(phi_k, unit)
    if products is None:
        weights, values, normaliser = rows_times_each(
            queries, shared.mT, state.values, state.normaliser.mT
        )
    else:
        weights, normaliser = rows_times_each(queries, shared.mT, state.normaliser.mT)
        values = products
    weights, seen = times(tokens, weights), tokens.mantissa
    values, normaliser = times(kept, values), times(kept, normaliser)
    if decay is not None:
        # After the products: their gradients could underflow before.
        weights, seen = weights * decay.within, seen * decay.within
        values, normaliser = values * decay.before, normaliser * decay.before
    numerator = weights @ v + values
    denominator = weights.sum(-1, keepdim=True) + normaliser
    if not signed:
        return divide(numerator, raised(denominator, log_floor, reference, unit=unit), signed)
    mass = times(kept, state.mass)
    mass = (mass if decay is None else mass * decay.before) + seen @ lengths(phi_k.mantissa)
    floor = rounding_floor(lengths(queries.mantissa), mass)
    ratio = divide(numerator, raised(denominator, log_floor, reference, floor), signed)
    running_value = running_max(largest_entry(v), -2)
    return bounded(ratio, torch.maximum(state.largest_value, running_value))
