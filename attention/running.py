"""The largest number so far, also where a graph is exported: ONNX has no such operator."""

import torch
from torch import Tensor

from attention.tracing import is_exporting

__all__ = ["running_max"]


def running_max(x: Tensor, dim: int) -> Tensor:
    """Of each entry the largest of those up to it along `dim`; same shape.

    In an export the length is doubled that a maximum is of, log2(L) times (Hillis and Steele 1986,
    Data Parallel Algorithms): the same numbers to the bit, for the L of the example. Where L is any
    number, maxima are of the rows of an L x L matrix.
    """
    if not (torch.compiler.is_compiling() and is_exporting()):
        return x.cummax(dim).values
    shift, length = 1, x.shape[dim]
    if not isinstance(length, int):
        rows = x.movedim(dim, -1).unsqueeze(-2).expand(*(-1,) * (x.ndim - 1), length, -1)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        return rows.masked_fill(later, -torch.inf).amax(-1).movedim(-1, dim)
    while shift < length:
        later = torch.maximum(
            x.narrow(dim, shift, length - shift), x.narrow(dim, 0, length - shift)
        )
        x = torch.cat((x.narrow(dim, 0, shift), later), dim)
        shift *= 2
    return x
