"""Queries about tensors that also work while compiling, tracing and exporting."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad

is_exporting = getattr(torch.compiler, "is_exporting", bool)
"""Requires PyTorch 2.7; with earlier versions a graph exported with gradients enabled needs this
package to run."""

_onnx = False


@contextmanager
def for_onnx() -> Iterator[None]:
    """Context manager for exports to ONNX."""
    global _onnx
    before, _onnx = _onnx, True
    try:
        yield
    finally:
        _onnx = before


def is_for_onnx() -> bool:
    """Whether the current export is for ONNX."""
    return torch.compiler.is_compiling() and is_exporting() and _onnx


def fixed_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape as constants in a trace, where reading a size takes three operations."""
    return tuple(map(int, tensor.shape)) if torch.jit.is_tracing() else tuple(tensor.shape)


def known(condition: Tensor) -> bool | None:
    """Return the value of a boolean tensor (), or None if it cannot be read.

    It cannot be read while compiling or exporting, under `torch.vmap`, and on the meta device.
    """
    if torch.compiler.is_compiling():
        return None
    try:
        return bool(condition)
    except RuntimeError:  # the one public sign of vmap; NotImplementedError of meta is one too
        return None


def known_now(condition: Tensor) -> bool | None:
    """Like `known`, but None while tracing, where a value that depends on the input is not a
    constant."""
    return None if torch.jit.is_tracing() else known(condition)


def may_write(*operands: Tensor) -> bool:
    """Whether results computed from the tensors may be written into existing memory.

    They may not if autograd may record a graph, with forward-mode derivatives, or if a tensor has
    no memory: while compiling or exporting, and under transforms such as `torch.vmap` and
    `torch.func.jvp`.
    """
    return not torch.is_grad_enabled() and is_plain(*operands)


def is_plain(*operands: Tensor) -> bool:
    """Whether tensors have memory and no forward-mode derivative: neither a compiler nor a
    transform such as `torch.vmap` or `torch.func.jvp` replaces them."""
    if torch.compiler.is_compiling():
        return False
    try:
        for operand in operands:
            operand.data_ptr()
    except RuntimeError:
        return False
    return all(forward_ad.unpack_dual(operand).tangent is None for operand in operands)
