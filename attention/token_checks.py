"""Validation of queries, keys, values and masks."""

from itertools import zip_longest

import torch
from torch import Tensor

from attention.precision import working_dtype


def without_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the output for L = 0, (..., 0, dv), with all inputs in its graph; their gradients are
    0."""
    sums = q.sum(-1, keepdim=True) + k.sum((-2, -1), keepdim=True) + v.sum(-2, keepdim=True)
    return sums.to(v.dtype)


def check_features(phi_q: Tensor, phi_k: Tensor) -> None:
    """Raise ValueError unless the features match."""
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
    """Raise ValueError unless (..., L, .), (..., S, .), (..., S, dv) and the mask match.

    `names` are the names of q and k in error messages.
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
    # With (B, H, S, d), a mask (B, S) would silently mask by head if B = H.
    if key_mask.ndim not in (1, dimensions) or not _broadcast(key_mask.shape[:-1], *leading):
        raise ValueError(
            f"key_mask must have 1 or {dimensions} dimensions and fit "
            f"{q_name} of shape {tuple(q.shape)} (with heads (B, 1, S), not (B, S)), got shape "
            f"{tuple(key_mask.shape)}"
        )


def _broadcast(*shapes: torch.Size) -> bool:
    """Whether the shapes broadcast; True when compiled or traced, since sizes may be unknown."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    sizes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return all(len(set(column) - {1}) <= 1 for column in sizes)
