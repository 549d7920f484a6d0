"""Masks as `nn.MultiheadAttention` takes them, turned into what linear attention can do."""

import torch
from torch import Tensor

IGNORED = -1e4
"""Float masks: entries of this and below ignore a key, as -inf does. exp(-1e4) is 0 in any dtype;
-1e9 and the least number of a dtype are common in place of -inf."""


def visible_keys(key_padding_mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """True where a key takes part: (1 or batch, 1, length), or (length,), as the mask has it.

    The mask (batch, length) is True, or -1e4 and below, where a key is ignored; one row, or none,
    serves all of a batch.

    Raises ValueError for a mask of another shape or dtype, or a float mask with values but those
    and 0.
    """
    if key_padding_mask is None:
        return None
    if tuple(key_padding_mask.shape) not in ((batch, length), (1, length), (length,)):
        raise ValueError(
            f"key_padding_mask must have shape {(batch, length)}, got "
            f"{tuple(key_padding_mask.shape)}"
        )
    visible = _not_ignored(key_padding_mask)
    return visible if visible.ndim == 1 else visible.unsqueeze(1)


def _not_ignored(key_padding_mask: Tensor) -> Tensor:
    if key_padding_mask.dtype == torch.bool:
        return ~key_padding_mask
    if not key_padding_mask.is_floating_point():
        raise ValueError(
            f"key_padding_mask must be a bool or float tensor, got {key_padding_mask.dtype}"
        )
    visible = key_padding_mask == 0
    if not torch.compiler.is_compiling() and not bool(
        (visible | (key_padding_mask <= IGNORED)).all()
    ):
        raise ValueError(
            "key_padding_mask must hold 0 and values of -1e4 or below (-inf) only where it is a "
            "float tensor, got others"
        )
    return visible


def is_causal_mask(
    attn_mask: Tensor | None, length: int, width: int, is_causal: bool = False
) -> bool:
    """Whether (length, width) attention is causal by its flag or by its mask.

    The mask is (..., length, width): the causal one, or one that masks nothing, which counts as
    None. True, or -1e4 and below, ignores a pair. The values are read, which on an accelerator
    waits for them; is_causal alone does not. A compiled graph cannot read them: there a mask needs
    is_causal=True beside it, and is trusted.

    Raises ValueError for any other mask.
    """
    if attn_mask is None:
        return is_causal
    reason = "linear attention has no matrix to mask"
    if torch.compiler.is_compiling():
        if not is_causal:
            raise ValueError(f"attn_mask must come with is_causal=True where compiled; {reason}")
        return True
    if attn_mask.ndim < 2 or attn_mask.shape[-2:] != (length, width):
        raise ValueError(
            f"attn_mask must be None or the causal mask of shape {(length, width)}, got shape "
            f"{tuple(attn_mask.shape)}; {reason}"
        )
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f"attn_mask must be a bool or float tensor, got {attn_mask.dtype}")
    hidden = attn_mask if attn_mask.dtype == torch.bool else attn_mask <= IGNORED
    additive = attn_mask.dtype != torch.bool and bool((attn_mask.masked_fill(hidden, 0) != 0).any())
    if not additive and not bool(hidden.any()):
        return is_causal
    causal = torch.ones(length, width, dtype=torch.bool, device=attn_mask.device).triu(1)
    if length != width or additive or not bool((hidden == causal).all()):
        raise ValueError(
            f"attn_mask must be None or the causal mask, got another of shape "
            f"{tuple(attn_mask.shape)}; {reason}"
        )
    return True
