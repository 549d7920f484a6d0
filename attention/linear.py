"""Linear attention: the same ratio as the quadratic form on the features, in O(L F dv).

out_i = sum_j (phi_q_i . phi_k_j) v_j / sum_j (phi_q_i . phi_k_j), the product of keys' features and
values taken first. No epsilon anywhere: a constant added to features or denominators biases the
result, and swamps it when features are small.

Keys' features may come as mantissa * exp(log_scale). Sums are then kept in units of the largest
scale: of all visible keys, or for causal attention of the keys up to each query, so that a later
key, however large, changes no earlier output by a bit.
"""

from collections.abc import Iterable
from itertools import zip_longest

import torch
from torch import Tensor

from attention.components import SCORE, component
from attention.denominators import bounded, divide, raised, rounding_floor
from attention.precision import full_precision, working_dtype
from attention.recurrent import (
    LinearAttentionState,
    absorb,
    empty_state,
    largest_entry,
    lengths,
    read,
)

CHUNK = 64
"""Tokens that the causal form treats at once, by the quadratic form on the features, on a CPU."""
ACCELERATOR_CHUNK = 256
"""The same elsewhere, where launches cost more than operations."""

KeyBlock = tuple[Tensor, Tensor | None, Tensor]
"""Features (..., C, F), log-scales (..., C, 1) or None, values (..., C, dv) of C keys."""
QueryBlock = tuple[Tensor, Tensor | None]
"""Features (..., C, F) and log-floors (..., C, 1) or None of C queries."""


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_log_scale: Tensor | None = None,
    log_floor: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Attention from features.

    phi_q (..., L, F), phi_k (..., S, F), v (..., S, dv) -> (..., L, dv) in v's dtype. Sums are in
    float32 for float16 and bfloat16, autocast or not.

    Scaling a row of phi_q, or all of phi_k by one number, changes nothing; scaling single rows of
    phi_k does. A causal query before the first visible key gets zeros. No queries, no output: L = 0
    gives (..., 0, dv), whatever S is.

    Args:
        causal: query i sees keys 0..i only; needs L = S.
        key_mask: bool, True where a key takes part; left out of numerator and denominator. (S,)
            for all, or as many leading dimensions as the tokens have: (B, 1, S) for heads.
        key_log_scale: (..., S, 1), the keys' features are phi_k * exp(key_log_scale).
        log_floor: (..., L, 1), log of the least denominator sum_j phi_q_i . phi_k_j allowed.
        signed: the features can give denominators at or below zero (trig, hybrids): raise those
            below their rounding error and clip the output to +-max |v|, the policy of
            `attention.denominators`. Otherwise the plain ratio.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, no key for a query, a mask that is
            not boolean, or one that leaves no key.
    """
    check_tokens(phi_q, phi_k, v, causal, key_mask, ("phi_q", "phi_k"))
    check_features(phi_q, phi_k)
    if phi_q.shape[-2] == 0:
        return without_queries(phi_q, phi_k, v)
    dtype = working_dtype(phi_q.dtype)
    phi_q, phi_k, values = phi_q.to(dtype), phi_k.to(dtype), v.to(dtype)
    if key_mask is not None:
        hidden = ~key_mask.unsqueeze(-1)
        phi_k, values = phi_k.masked_fill(hidden, 0), values.masked_fill(hidden, 0)
        if key_log_scale is not None:
            key_log_scale = key_log_scale.masked_fill(hidden, -torch.inf)
    rows = chunk_rows(phi_q) if causal else None
    queries: list[QueryBlock] = [
        (phi_q[..., rows_, :], None if log_floor is None else log_floor[..., rows_, :])
        for rows_ in slices(phi_q.shape[-2], rows)
    ]
    keys: list[KeyBlock] = [
        (
            phi_k[..., rows_, :],
            None if key_log_scale is None else key_log_scale.to(dtype)[..., rows_, :],
            values[..., rows_, :],
        )
        for rows_ in slices(phi_k.shape[-2], rows)
    ]
    blocks = causal_blocks if causal else bidirectional_blocks
    return blocks(queries, keys, signed).to(v.dtype)


def bidirectional_blocks(
    queries: Iterable[QueryBlock], keys: Iterable[KeyBlock], signed: bool
) -> Tensor:
    """Every query over every key; blocks are taken one at a time, all keys first."""
    state = None
    for phi_k, log_scale, v in keys:
        with component(SCORE), full_precision(v):
            if state is None:
                state = empty_state(phi_k, v, log_scale is not None)
            state = absorb(state, phi_k, log_scale, v, signed)
    assert state is not None
    outputs = []
    for phi_q, log_floor in queries:
        with component(SCORE), full_precision(phi_q):
            outputs.append(read(state, phi_q, log_floor, signed))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -2)


def causal_blocks(queries: Iterable[QueryBlock], keys: Iterable[KeyBlock], signed: bool) -> Tensor:
    """Chunks in order: earlier chunks through their summed state, the chunk itself masked.

    Row i of a chunk is in units of the largest key scale up to i, by a running maximum.
    """
    state = None
    outputs = []
    for (phi_q, log_floor), (phi_k, log_scale, v) in zip(queries, keys, strict=True):
        with component(SCORE), full_precision(v):
            if state is None:
                state = empty_state(phi_k, v, log_scale is not None)
            outputs.append(_causal_chunk(state, phi_q, log_floor, phi_k, log_scale, v, signed))
            state = absorb(state, phi_k, log_scale, v, signed)
    return torch.cat(outputs, -2)


def _causal_chunk(
    state: LinearAttentionState,
    phi_q: Tensor,
    log_floor: Tensor | None,
    phi_k: Tensor,
    log_scale: Tensor | None,
    v: Tensor,
    signed: bool,
) -> Tensor:
    size = v.shape[-2]
    if log_scale is None:
        reference = state.log_scale
        decay = v.new_ones(size, size).tril()
    else:
        running = log_scale.detach().cummax(-2).values
        reference = torch.maximum(state.log_scale, running)
        later = v.new_full((size, size), -torch.inf).triu(1)
        decay = (log_scale.mT - reference + later).exp()
    kept = (state.log_scale - reference).exp()
    weights = (phi_q @ phi_k.mT) * decay
    numerator = weights @ v + kept * (phi_q @ state.values)
    denominator = weights.sum(-1, keepdim=True) + kept * (state.normaliser @ phi_q.mT).mT
    if not signed:
        return divide(numerator, raised(denominator, log_floor, reference))
    mass = kept * state.mass + decay @ lengths(phi_k)
    denominator = raised(denominator, log_floor, reference, rounding_floor(lengths(phi_q), mass))
    running_value = largest_entry(v).cummax(-2).values
    return bounded(
        divide(numerator, denominator), torch.maximum(state.largest_value, running_value)
    )


def chunk_rows(like: Tensor) -> int:
    """Tokens that the causal form treats at once on `like`'s device."""
    return CHUNK if like.device.type == "cpu" else ACCELERATOR_CHUNK


def slices(length: int, rows: int | None) -> list[slice]:
    """Blocks of `rows` tokens; None: one block, whatever the length, known or not."""
    if rows is None:
        return [slice(None)]
    return [slice(start, start + rows) for start in range(0, max(length, 1), rows)]


def without_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output for L = 0, (..., 0, dv), with all inputs in its graph; their gradients are 0."""
    sums = q.sum(-1, keepdim=True) + k.sum((-2, -1), keepdim=True) + v.sum(-2, keepdim=True)
    return sums.to(v.dtype)


def check_features(phi_q: Tensor, phi_k: Tensor) -> None:
    """Raise ValueError unless the features go together."""
    if phi_q.shape[-1] != phi_k.shape[-1]:
        raise ValueError(
            f"phi_q and phi_k must have the same last dimension F, got {phi_q.shape[-1]} "
            f"and {phi_k.shape[-1]}"
        )


def check_tokens(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    key_mask: Tensor | None,
    names: tuple[str, str] = ("x", "y"),
) -> None:
    """Raise ValueError unless (..., L, .), (..., S, .), (..., S, dv) and the mask go together.

    `names` are those that the caller's user knows q and k by.
    """
    q_name, k_name = names
    for argument, t in ((q_name, q), (k_name, k), ("v", v)):
        if t.ndim < 2:
            raise ValueError(
                f"{argument} must have at least 2 dimensions, tokens and entries, got shape "
                f"{tuple(t.shape)}"
            )
    for argument, t in ((k_name, k), ("v", v)):
        if t.device != q.device:
            raise ValueError(
                f"{argument} must be on the device of {q_name}, {q.device}, got {t.device}"
            )
        if working_dtype(t.dtype) != working_dtype(q.dtype):
            raise ValueError(
                f"{argument} must have the dtype of {q_name}, {q.dtype}, got {t.dtype}"
            )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"v must have as many tokens as {k_name}, {k.shape[-2]}, got {v.shape[-2]}"
        )
    if causal and q.shape[-2] != k.shape[-2]:
        raise ValueError(
            f"causal=True needs as many queries as keys, got {q.shape[-2]} and {k.shape[-2]}"
        )
    if k.shape[-2] == 0 and q.shape[-2] != 0:
        raise ValueError(
            f"{k_name} must have at least one token for the {q.shape[-2]} of {q_name} to attend to"
            ", got none"
        )
    leading = (q.shape[:-2], k.shape[:-2], v.shape[:-2])
    if not _broadcast(*leading):
        raise ValueError(
            f"{q_name}, {k_name} and v must have leading dimensions that broadcast, got "
            f"{', '.join(str(tuple(shape)) for shape in leading)}"
        )
    if key_mask is None:
        return
    if key_mask.dtype != torch.bool or key_mask.shape[-1:] != k.shape[-2:-1]:
        raise ValueError(
            f"key_mask must be a bool tensor with last dimension {k.shape[-2]}, got "
            f"{key_mask.dtype} of shape {tuple(key_mask.shape)}"
        )
    if key_mask.device != q.device:
        raise ValueError(
            f"key_mask must be on the device of {q_name}, {q.device}, got {key_mask.device}"
        )
    dimensions = max(len(shape) for shape in leading) + 1
    # (B, S) beside (B, H, S, d) would silently mask by head where B = H.
    if key_mask.ndim not in (1, dimensions) or not _broadcast(key_mask.shape[:-1], *leading):
        raise ValueError(
            f"key_mask must have 1 or {dimensions} dimensions and fit "
            f"{q_name} of shape {tuple(q.shape)} (with heads (B, 1, S), not (B, S)), got shape "
            f"{tuple(key_mask.shape)}"
        )
    if torch.compiler.is_compiling() or q.shape[-2] == 0:
        return
    if not bool(key_mask.any(-1).all()):
        raise ValueError("key_mask must leave at least one key in every row, got a row of False")


def _broadcast(*shapes: torch.Size) -> bool:
    """Whether the shapes broadcast; True where compiled, whose sizes may not be known."""
    if torch.compiler.is_compiling():
        return True
    sizes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return all(len(set(column) - {1}) <= 1 for column in sizes)
