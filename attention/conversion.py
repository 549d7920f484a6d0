"""Convert numbers, lists and arrays to tensors, without importing NumPy."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class HasArray(Protocol):
    """A NumPy array or an object that converts to one, such as a NumPy scalar or a pandas
    column."""

    def __array__(self) -> Any: ...


Numbers = Tensor | complex | Sequence[Any] | HasArray
"""Values that `to_tensor` accepts. Type checkers accept float and int for complex."""


def to_tensor(value: Numbers) -> Tensor:
    """Convert a value to a tensor. A tensor is returned unchanged; any other value becomes a new
    tensor on the CPU.

    Python's floats become float64, complex numbers complex128, integers int64; arrays keep their
    dtype. Lists may be nested, and hold arrays and tensors.

    Raises TypeError or ValueError if the value does not consist of numbers or its rows differ in
    length.
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__array__"):
        return torch.tensor(value.__array__().copy(), device="cpu")  # a copy has no negative steps
    if isinstance(value, list | tuple) and not all(isinstance(v, int | float) for v in value):
        rows = [to_tensor(row) for row in value]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(f"rows must have one length, got {value!r}")
        return torch.stack(rows)
    try:
        made = torch.tensor(value, device="cpu")
    except RuntimeError as error:  # what is no number at all, and integers beyond 64 bits
        raise ValueError(str(error)) from None
    wide = torch.complex128 if made.is_complex() else torch.float64
    return made if _whole(made) else torch.tensor(value, dtype=wide, device="cpu")


def as_numbers(**arguments: Numbers) -> tuple[Tensor, ...]:
    """Convert arguments to tensors that can be combined.

    Floating-point tensors and arrays keep their dtype. Numbers, lists and integer tensors take the
    dtype and device of the other arguments, or float64 if no other argument has a floating-point
    dtype.

    Raises ValueError that names the argument if it does not consist of numbers.
    """
    made: dict[str, Tensor] = {}
    for argument, value in arguments.items():
        try:
            made[argument] = to_tensor(value)
        except (TypeError, ValueError):
            made[argument] = torch.tensor(True)
        if made[argument].dtype == torch.bool:
            raise ValueError(f"{argument} must be made of numbers, got {value!r}")
    bare = {a for a, value in arguments.items() if _bare(value) or _whole(made[a])}
    leaders = [tensor for a, tensor in made.items() if a not in bare]
    like = leaders[0].real if leaders else torch.empty(0, dtype=torch.float64, device="cpu")
    for argument in bare:
        complex_too = made[argument].is_complex()
        dtype = like.dtype.to_complex() if complex_too else like.dtype
        made[argument] = made[argument].to(like.device, dtype)
    return tuple(made.values())


def as_vectors(**arguments: Numbers) -> tuple[Tensor, ...]:
    """Like `as_numbers`, for vectors (..., d): a single number becomes a vector with d = 1."""
    return tuple(t.unsqueeze(0) if t.ndim == 0 else t for t in as_numbers(**arguments))


def _bare(value: Numbers) -> bool:
    """Whether the value has no floating-point dtype."""
    return not isinstance(value, Tensor) and not hasattr(value, "__array__")


def _whole(tensor: Tensor) -> bool:
    """Whether the tensor has an integer or boolean dtype."""
    return not (tensor.is_floating_point() or tensor.is_complex())
