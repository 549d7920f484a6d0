"""What can be known of tensors, and done with their memory, where both are real."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = [
    "fixed_shape",
    "for_onnx",
    "is_exporting",
    "is_for_onnx",
    "known",
    "known_now",
    "may_write",
]

is_exporting = getattr(torch.compiler, "is_exporting", bool)
"""From PyTorch 2.7 on; before, a graph exported with gradients on needs this package to run."""

_onnx = False


@contextmanager
def for_onnx() -> Iterator[None]:
    """What `torch.export` makes meanwhile becomes ONNX, whose operators run it."""
    global _onnx
    before, _onnx = _onnx, True
    try:
        yield
    finally:
        _onnx = before


def is_for_onnx() -> bool:
    """Whether ONNX's operators will run what is exported now."""
    return torch.compiler.is_compiling() and is_exporting() and _onnx


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


def known_now(condition: Tensor) -> bool | None:
    """As `known`, and None while tracing: what differs from input to input is no constant."""
    return None if torch.jit.is_tracing() else known(condition)


def may_write(*operands: Tensor) -> bool:
    """Whether what is computed of tensors may be written into memory that is at hand.

    Not where a graph may be kept, derivatives go forward, or one of them has no memory: while
    compiling or exporting, and under transforms such as `torch.vmap` and `torch.func.jvp`.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    try:
        for operand in operands:
            operand.data_ptr()
    except RuntimeError:
        return False
    return all(forward_ad.unpack_dual(operand).tangent is None for operand in operands)
