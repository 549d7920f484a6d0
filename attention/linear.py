"""Linear attention: the same ratio as the quadratic form on the features, in O(L F dv).

out_i = sum_j (phi_q_i . phi_k_j) v_j / sum_j (phi_q_i . phi_k_j), the product of keys' features and
values taken first. No epsilon anywhere: a constant added to features or denominators biases the
result, and swamps it when features are small.
"""

import torch
from torch import Tensor

from attention.components import SCORE, component

CHUNK = 128
"""Tokens that the causal form treats at once, by the quadratic form on the features."""


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Attention from features.

    phi_q (..., L, F), phi_k (..., S, F), v (..., S, dv) -> (..., L, dv).

    Scaling a row of phi_q, or all of phi_k by one number, changes nothing; scaling single rows of
    phi_k does. Signed features (trig, hybrids) can give denominators at or below zero.

    Args:
        causal: query i sees keys 0..i only; needs L = S.
        key_mask: (..., S) bool, True where a key takes part; left out of numerator and denominator.

    Raises:
        ValueError: shapes that do not fit, a mask that is not boolean, or one that leaves no key.
    """
    _check_shapes(phi_q, phi_k, v, causal, key_mask)
    if key_mask is not None:
        hidden = ~key_mask.unsqueeze(-1)
        phi_k, v = phi_k.masked_fill(hidden, 0), v.masked_fill(hidden, 0)
    if causal:
        return _causal(phi_q, phi_k, v)
    with component(SCORE):
        numerator = phi_q @ (phi_k.mT @ v)
        denominator = phi_q @ phi_k.sum(-2).unsqueeze(-1)
        return numerator / denominator


def _causal(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    """Chunks in order: earlier chunks through their summed state, the chunk itself masked."""
    state = phi_k.new_zeros(*v.shape[:-2], phi_k.shape[-1], v.shape[-1])
    total = phi_k.new_zeros(*phi_k.shape[:-2], phi_k.shape[-1], 1)
    outputs = []
    for q, k, values in zip(
        phi_q.split(CHUNK, -2), phi_k.split(CHUNK, -2), v.split(CHUNK, -2), strict=True
    ):
        with component(SCORE):
            weights = (q @ k.mT).tril()
            numerator = weights @ values + q @ state
            denominator = weights.sum(-1, keepdim=True) + q @ total
            outputs.append(numerator / denominator)
            state = state + k.mT @ values
            total = total + k.sum(-2).unsqueeze(-1)
    return torch.cat(outputs, -2)


def _check_shapes(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, causal: bool, key_mask: Tensor | None
) -> None:
    if phi_q.shape[-1] != phi_k.shape[-1]:
        raise ValueError(
            f"phi_q and phi_k must have the same last dimension F, got {phi_q.shape[-1]} "
            f"and {phi_k.shape[-1]}"
        )
    if phi_k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"v must have as many tokens as phi_k, {phi_k.shape[-2]}, got {v.shape[-2]}"
        )
    if causal and phi_q.shape[-2] != phi_k.shape[-2]:
        raise ValueError(
            "causal=True needs as many queries as keys, got "
            f"{phi_q.shape[-2]} and {phi_k.shape[-2]}"
        )
    if key_mask is None:
        return
    if key_mask.dtype != torch.bool or key_mask.shape[-1] != phi_k.shape[-2]:
        raise ValueError(
            f"key_mask must be a bool tensor with last dimension {phi_k.shape[-2]}, got "
            f"{key_mask.dtype} of shape {tuple(key_mask.shape)}"
        )
    if not torch.compiler.is_compiling() and not bool(key_mask.any(-1).all()):
        raise ValueError("key_mask must leave at least one key in every row, got a row of False")
