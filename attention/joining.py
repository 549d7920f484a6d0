"""Split tensors into parts and join parts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attention.tracing import may_write


def parts(whole: Tensor, size: int | None, axis: int) -> tuple[Tensor, ...]:
    """Split into parts of `size` along an axis, the last one possibly smaller. None gives a single
    part.

    The gradients of the parts are joined once; slicing would create a full-size gradient per slice.
    """
    return (whole,) if size is None else whole.split(size, axis)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate along an axis; a single part is returned without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), axis)


class Rows:
    """Collects blocks (..., rows, n) that are computed one after the other, `count` rows in total.

    Without autograd, each block is copied to its place while it is still in the cache.
    """

    def __init__(self, count: int) -> None:
        self._count, self._filled = count, 0
        self._blocks: list[Tensor] = []
        self._joined: Tensor | None = None

    def add(self, block: Tensor) -> None:
        rows = block.shape[-2]
        if not self._filled and rows < self._count and may_write(block):
            self._joined = block.new_empty((*block.shape[:-2], self._count, block.shape[-1]))
        if self._joined is None:
            self._blocks.append(block)
        else:
            self._joined.narrow(-2, self._filled, rows).copy_(block)
        self._filled += rows

    def next(self, like: Tensor, width: int) -> Tensor:
        """Return the place of the next block (..., rows, width), which the caller fills, for a
        tensor (..., rows, 1). Without autograd only."""
        rows = like.shape[-2]
        if self._joined is None:
            self._joined = like.new_empty((*like.shape[:-2], self._count, width))
        place = self._joined.narrow(-2, self._filled, rows)
        self._filled += rows
        return place

    def whole(self) -> Tensor:
        """Return all rows."""
        return joined(self._blocks, -2) if self._joined is None else self._joined
