"""Validation of the options, sizes and inputs of `RandomFeatureAttention`."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attention.options import check_count, is_real
from attention.precision import working_dtype


def check_inputs(
    inputs: Sequence[tuple[str, Tensor, int]], weight: Tensor, batch_first: bool
) -> None:
    """Raise ValueError if the tokens do not fit each other or the module.

    Args:
        inputs: name, tokens (batch, L, size), in the layout of `batch_first`, or (L, size), and
            size, for query, key and possibly value.
        weight: a parameter of the module.
        batch_first: whether the batch comes before the tokens.
    """
    query = inputs[0][1]
    device, dtype = weight.device, weight.dtype
    for argument, tokens, size in inputs:
        if tokens.is_nested:
            raise ValueError(
                f"{argument} must not be a nested tensor; build nn.TransformerEncoder with "
                "enable_nested_tensor=False"
            )
        if tokens.ndim not in (2, 3) or tokens.ndim != query.ndim or tokens.shape[-1] != size:
            raise ValueError(
                f"{argument} must have {query.ndim if query.ndim in (2, 3) else '2 or 3'} "
                f"dimensions, the last of size {size}, got shape {tuple(tokens.shape)}"
            )
        if tokens.device != device:
            raise ValueError(
                f"{argument} must be on the module's device {device}, got {tokens.device}"
            )
        if tokens.dtype != dtype and not _autocast_converts(tokens.dtype, weight):
            raise ValueError(
                f"{argument} must have the module's dtype {dtype}, got {tokens.dtype}; cast "
                "either with .to(dtype)"
            )
    batched = query.ndim == 3
    length_dim, batch_dim = (1, 0) if batched and batch_first else (0, 1)
    for argument, tokens, _ in inputs[1:]:
        if batched and tokens.shape[batch_dim] != query.shape[batch_dim]:
            raise ValueError(
                f"{argument} must have the batch size of query, {query.shape[batch_dim]}, got "
                f"{tokens.shape[batch_dim]}"
            )
    if len(inputs) < 3:
        return
    queries, keys, values = (tokens.shape[length_dim] for _, tokens, _ in inputs)
    if values != keys:
        raise ValueError(f"value must have as many tokens as key, {keys}, got {values}")
    if keys == 0 and queries != 0:
        raise ValueError(f"key must have at least one token for {queries} of query, got none")


def _autocast_converts(dtype: torch.dtype, weight: Tensor) -> bool:
    """Whether autocast is enabled for the weight's device and supports this dtype."""
    device_type = weight.device.type
    # Asking whether it is enabled raises for a device without autocast.
    if not torch.amp.is_autocast_available(device_type):
        return False
    same = working_dtype(dtype) == working_dtype(weight.dtype)
    return torch.is_autocast_enabled(device_type) and same


def check_options(options: dict[str, Any], refused: dict[str, str], argument: str) -> None:
    """Raise ValueError for an option that another argument determines."""
    for name in options:
        if name in refused:
            raise ValueError(
                f"{argument} must be projection, seed and those of the feature map, got {name!r}, "
                f"which {refused[name]}"
            )


def check_sizes(embed_dim: int, num_heads: int, dropout: float) -> None:
    """Raise ValueError if the sizes do not fit each other."""
    check_count("embed_dim", embed_dim)
    check_count("num_heads", num_heads)
    if embed_dim % num_heads:
        raise ValueError(f"embed_dim must be a multiple of num_heads={num_heads}, got {embed_dim}")
    if not is_real(dropout) or not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")


def check_kv_heads(num_heads: int, num_kv_heads: int | None) -> int:
    """Return the number of key and value heads. Raises ValueError unless it divides num_heads."""
    if num_kv_heads is None:
        return num_heads
    if num_heads % check_count("num_kv_heads", num_kv_heads):
        raise ValueError(f"num_kv_heads must divide num_heads={num_heads}, got {num_kv_heads}")
    return num_kv_heads


def check_length(qk_length: float | None) -> float | None:
    """Return the length; raise ValueError unless it is positive and finite, or None."""
    if qk_length is not None and not (is_real(qk_length) and 0 < qk_length < math.inf):
        raise ValueError(f"qk_length must be above 0 and finite, or None, got {qk_length!r}")
    return qk_length
