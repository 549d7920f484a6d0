"""Convert masks of `nn.MultiheadAttention` to masks of linear attention."""

import torch
from torch import Tensor

from attention.tracing import known

IGNORED = -1e4
"""In float masks, entries at or below this value ignore a key, as -inf does. exp(-1e4) is 0 in any
dtype; -1e9 and the lowest number of a dtype are often used instead of -inf."""


def visible_keys(key_padding_mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """Return True where a key takes part: (1 or batch, 1, length), or (length,), depending on the
    mask.

    The mask (batch, length) is True, or -1e4 and below, where a key is ignored; a single row, or a
    mask (length,), applies to the whole batch.

    Raises ValueError for a mask of another shape or dtype, or a float mask with other values.
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


def visible_tokens(key_padding_mask: Tensor | None, batch: int) -> Tensor | None:
    """Return True where a single token takes part, (batch, 1, 1), for a mask (batch,) as in
    `visible_keys`."""
    if key_padding_mask is None:
        return None
    if tuple(key_padding_mask.shape) != (batch,):
        raise ValueError(
            f"key_padding_mask must have shape {(batch,)}, got {tuple(key_padding_mask.shape)}"
        )
    return _not_ignored(key_padding_mask)[:, None, None]


def _not_ignored(key_padding_mask: Tensor) -> Tensor:
    if key_padding_mask.dtype == torch.bool:
        return ~key_padding_mask
    if not key_padding_mask.is_floating_point():
        raise ValueError(
            f"key_padding_mask must be a bool or float tensor, got {key_padding_mask.dtype}"
        )
    visible = key_padding_mask == 0
    if known((visible | (key_padding_mask <= IGNORED)).all()) is False:
        raise ValueError(
            "a float key_padding_mask must hold only 0 and values of at most -1e4, such as "
            "-inf, got other values"
        )
    return visible


def is_causal_mask(
    attn_mask: Tensor | None,
    length: int,
    width: int,
    is_causal: bool = False,
    sequences: int | None = None,
) -> bool:
    """Whether (length, width) attention is causal according to its flag or its mask.

    The mask is (length, width) or (sequences, length, width), with one sequence for each head of
    each batch entry. It must be the causal mask, or mask nothing, which counts as None. True, or
    -1e4 and below, ignores a pair. The values of the mask are read, which synchronises an
    accelerator; is_causal without a mask does not. Where values cannot be read, in a compiled graph
    and under `torch.vmap`, a mask requires is_causal=True and is trusted.

    Raises ValueError for any other mask.
    """
    if attn_mask is None:
        return is_causal
    reason = "linear attention has no matrix to mask"
    shapes: list[tuple[int, ...]] = [(length, width)]
    shapes += [] if sequences is None else [(sequences, length, width)]
    if tuple(attn_mask.shape) not in shapes:
        each = "" if sequences is None else f" (for all, or {sequences}, one a head of the batch)"
        raise ValueError(
            f"attn_mask must be None or{each} the causal mask of shape {(length, width)}, "
            f"got shape {tuple(attn_mask.shape)}; {reason}"
        )
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f"attn_mask must be a bool or float tensor, got {attn_mask.dtype}")
    hidden = attn_mask if attn_mask.dtype == torch.bool else attn_mask <= IGNORED
    causal = torch.ones(length, width, dtype=torch.bool, device=attn_mask.device).triu(1)
    none = ~hidden.any()
    same = (hidden == causal).all() & (length == width)
    if attn_mask.dtype != torch.bool:
        sound = (attn_mask.masked_fill(hidden, 0) == 0).all()
        none, same = none & sound, same & sound
    masks_nothing, is_the_causal = known(none), known(same)
    if masks_nothing is None or is_the_causal is None:
        if not is_causal:
            raise ValueError(
                "attn_mask must come with is_causal=True where its values cannot be read, compiled "
                f"or under vmap; {reason}"
            )
        return True
    if masks_nothing:
        return is_causal
    if not is_the_causal:
        raise ValueError(
            f"attn_mask must be None or the causal mask, got another mask of shape "
            f"{tuple(attn_mask.shape)}; {reason}"
        )
    return True
