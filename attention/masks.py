"""Masks as `nn.MultiheadAttention` takes them, turned into what linear attention can do."""

import torch
from torch import Tensor


def visible_keys(key_padding_mask: Tensor | None) -> Tensor | None:
    """True where a key takes part. The mask is True, or -inf, where a key is ignored.

    Raises ValueError for a mask of another dtype, or a float mask with values but 0 and -inf.
    """
    if key_padding_mask is None:
        return None
    if key_padding_mask.dtype == torch.bool:
        return ~key_padding_mask
    if not key_padding_mask.is_floating_point():
        raise ValueError(
            f"key_padding_mask must be a bool or float tensor, got {key_padding_mask.dtype}"
        )
    visible = key_padding_mask == 0
    if not torch.compiler.is_compiling() and not bool(
        (visible | (key_padding_mask == -torch.inf)).all()
    ):
        raise ValueError("key_padding_mask must hold 0 and -inf only where it is a float tensor")
    return visible


def is_causal_mask(attn_mask: Tensor | None) -> bool:
    """Whether the mask is the causal one; raises ValueError for any other mask.

    A compiled graph cannot look at values: there a mask needs is_causal=True beside it.
    """
    if attn_mask is None:
        return False
    reason = "linear attention has no matrix to mask"
    if torch.compiler.is_compiling():
        raise ValueError(f"attn_mask must come with is_causal=True where compiled; {reason}")
    length, width = attn_mask.shape[-2:]
    hidden = attn_mask if attn_mask.dtype == torch.bool else attn_mask == -torch.inf
    causal = torch.ones(length, width, dtype=torch.bool, device=attn_mask.device).triu(1)
    additive = attn_mask.dtype != torch.bool and bool((attn_mask.masked_fill(hidden, 0) != 0).any())
    if length != width or additive or not bool((hidden == causal).all()):
        raise ValueError(
            f"attn_mask must be None or the causal mask, got another of shape "
            f"{tuple(attn_mask.shape)}; {reason}"
        )
    return True
