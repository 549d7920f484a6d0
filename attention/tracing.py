"""Reading values of tensors, where they can be read."""

import torch
from torch import Tensor

__all__ = ["fixed_shape", "is_exporting", "known"]

is_exporting = getattr(torch.compiler, "is_exporting", bool)
"""From PyTorch 2.7 on; before, a graph exported with gradients on needs this package to run."""


def fixed_shape(tensor: Tensor) -> tuple[int, ...]:
    """Its shape, which a trace then takes for constant: reading a size there takes three
    operations."""
    return tuple(map(int, tensor.shape)) if torch.jit.is_tracing() else tuple(tensor.shape)


def known(condition: Tensor) -> bool | None:
    """The value of a bool tensor (); None where none can be read.

    That is while compiling or exporting, under `torch.vmap`, and on the meta device.
    """
    if torch.compiler.is_compiling():
        return None
    try:
        return bool(condition)
    except RuntimeError:  # the one public sign of vmap; NotImplementedError of meta is one too
        return None
