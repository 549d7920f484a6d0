"""Attention over packed rows: several sequences in one row, which do not see each other.

Sequences are gathered into batches of similar lengths, padded to the longest, so that all of them
cost at most twice their own tokens in at most log2(L) calls of attention.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad


class Attend(Protocol):
    """`FeatureMap.attend` or `ExactSoftmax.attend`."""

    def __call__(
        self,
        x: Tensor,
        y: Tensor,
        values: Tensor,
        *,
        causal: bool = False,
        key_mask: Tensor | None = None,
    ) -> Tensor: ...


def attend_packed(
    attend: Attend,
    x: Tensor,
    y: Tensor,
    values: Tensor,
    segment_ids: Tensor,
    *,
    causal: bool,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Attention of each token over the tokens with its number.

    x, y (batch, ..., L, d), values (batch, ..., L, dv) -> (batch, ..., L, dv); dimensions between
    batch and L broadcast.

    Args:
        segment_ids: integers (batch, L), or (L,) for all rows; 0 is padding, whose output is zero.
        causal: tokens see only those before them, and themselves.
        key_mask: must be None.

    Raises ValueError for a mask, or numbers that do not fit the tokens.
    """
    if key_mask is not None:
        raise ValueError(
            "key_mask must be None with segment_ids, whose 0 is padding, got a mask of shape "
            f"{tuple(key_mask.shape)}"
        )
    if x.ndim < 3:
        x, y, values = (tokens.unsqueeze(0) for tokens in (x, y, values))
        return attend_packed(attend, x, y, values, segment_ids, causal=causal).squeeze(0)
    length, batch = x.shape[-2], x.shape[0]
    for name, tokens in (("y", y), ("values", values)):
        if tokens.shape[-2] != length or tokens.ndim != x.ndim or tokens.shape[0] != batch:
            raise ValueError(
                f"segment_ids need {name} with the batch and tokens of x, {tuple(x.shape)}, got "
                f"shape {tuple(tokens.shape)}"
            )
    check_segments(segment_ids, batch, length)
    rows = segment_ids.expand(batch, length)
    middle = torch.broadcast_shapes(*(tokens.shape[1:-2] for tokens in (x, y, values)))
    flat = [tokens.movedim(-2, 1).flatten(0, 1) for tokens in (x, y, values)]
    output = flat[2].new_zeros(batch * length, *middle, values.shape[-1])
    places, outputs = [], []
    for index, visible in _batches(rows):
        own = (tokens[index].movedim(1, -2) for tokens in flat)
        mask = None if visible.all() else visible.reshape(len(index), *(1,) * (x.ndim - 3), -1)
        attended = attend(*own, causal=causal, key_mask=mask).movedim(-2, 1)
        places.append(index[visible])
        outputs.append(attended[visible])
    if places:
        output = output.index_copy(0, torch.cat(places), torch.cat(outputs).to(output.dtype))
    return output.unflatten(0, (batch, length)).movedim(1, -2)


def check_segments(segment_ids: Tensor, batch: int, length: int) -> None:
    """Raise ValueError unless the numbers are integers of shape (batch, length) or (length,)."""
    if tuple(segment_ids.shape) not in ((batch, length), (length,)):
        raise ValueError(
            f"segment_ids must have shape {(batch, length)}, got {tuple(segment_ids.shape)}"
        )
    if segment_ids.is_floating_point() or segment_ids.is_complex():
        raise ValueError(f"segment_ids must be an integer tensor, got {segment_ids.dtype}")


def _batches(rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return, for sequences of similar length, the places (n, longest) of their tokens in the
    flattened rows, in order, and which of the places hold one."""
    ids = rows.flatten()
    row = torch.arange(len(rows), device=rows.device).repeat_interleave(rows.shape[1])
    order = ids.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    order = order[ids[order] != 0]
    if not len(order):
        return []
    pairs = torch.stack((row[order], ids[order].long()))
    begins = pad((pairs[:, 1:] != pairs[:, :-1]).any(0), (1, 0), value=True).nonzero().flatten()
    lengths = torch.diff(begins, append=begins.new_tensor([len(order)]))
    size = lengths.double().log2().ceil()
    batches = []
    for one in size.unique().tolist():
        some = size == one
        count = torch.arange(int(lengths[some].max()), device=rows.device)
        visible = count < lengths[some, None]
        places = (begins[some, None] + count).clamp_max(len(order) - 1)
        batches.append((order[places], visible))
    return batches
