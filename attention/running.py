"""The largest number so far, also where a graph is exported: ONNX has no such operator."""

import torch
from torch import Tensor

from attention.tracing import is_exporting

__all__ = ["running_max"]


def running_max(x: Tensor, dim: int) -> Tensor:
    """Of each entry the largest of those up to it along `dim`; same shape.

    In an export the length is doubled that a maximum is of, log2(L) times (Hillis and Steele 1986,
    Data Parallel Algorithms): the same numbers to the bit, for the L of the example.
    """
    if not (torch.compiler.is_compiling() and is_exporting()):
        return x.cummax(dim).values
    shift, length = 1, x.shape[dim]
    while shift < length:
        later = torch.maximum(
            x.narrow(dim, shift, length - shift), x.narrow(dim, 0, length - shift)
        )
        x = torch.cat((x.narrow(dim, 0, shift), later), dim)
        shift *= 2
    return x
