"""Parts of a whole, and parts joined again."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["joined", "parts"]


def parts(whole: Tensor, size: int | None, axis: int) -> tuple[Tensor, ...]:
    """Parts of `size` along an axis, the last one smaller; None: all in one, however long.

    Their gradients are joined once. That of each slice would be as large as the whole.
    """
    return (whole,) if size is None else whole.split(size, axis)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Along an axis; of one part itself, without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), axis)
