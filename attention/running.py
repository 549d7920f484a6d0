"""Running maximum that can be exported: ONNX has no such operator."""

import torch
from torch import Tensor

from attention.tracing import is_exporting


def running_max(x: Tensor, dim: int) -> Tensor:
    """Return the running maximum along `dim`, with the shape of the input.

    In an export with a static L the window of the maximum is doubled log2(L) times (Hillis and
    Steele 1986, Data Parallel Algorithms), with bit-identical results. With a dynamic L the maximum
    is taken over the rows of an L x L matrix.
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
