"""Parts of a whole, and parts joined again."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attention.tracing import may_write

__all__ = ["Rows", "joined", "parts"]


def parts(whole: Tensor, size: int | None, axis: int) -> tuple[Tensor, ...]:
    """Parts of `size` along an axis, the last one smaller; None: all in one, however long.

    Their gradients are joined once. That of each slice would be as large as the whole.
    """
    return (whole,) if size is None else whole.split(size, axis)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Along an axis; of one part itself, without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), axis)


class Rows:
    """Blocks (..., rows, n) that are made one after the other, `count` rows in all.

    Where no graph is kept each is copied to its place while it is in the cache.
    """

    def __init__(self, count: int) -> None:
        self._count, self._filled = count, 0
        self._blocks: list[Tensor] = []
        self._room: Tensor | None = None

    def add(self, block: Tensor) -> None:
        rows = block.shape[-2]
        if not self._filled and rows < self._count and may_write(block):
            self._room = block.new_empty((*block.shape[:-2], self._count, block.shape[-1]))
        if self._room is None:
            self._blocks.append(block)
        else:
            self._room.narrow(-2, self._filled, rows).copy_(block)
        self._filled += rows

    def whole(self) -> Tensor:
        """All of them."""
        return joined(self._blocks, -2) if self._room is None else self._room
