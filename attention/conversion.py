"""Numbers, lists and arrays as tensors. NumPy is not imported: whoever gives an array has it."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class HasArray(Protocol):
    """A NumPy array, or what gives one when asked: NumPy's numbers, a pandas column."""

    def __array__(self) -> Any: ...


Numbers = Tensor | complex | Sequence[Any] | HasArray
"""What `to_tensor` takes; to a type checker a float or an int is a complex number."""


def to_tensor(value: Numbers) -> Tensor:
    """A tensor as it is; anything else as a new one on the CPU.

    Python's floats become float64, complex numbers complex128, integers int64; arrays keep their
    dtype. Lists may be nested, and hold arrays and tensors.

    Raises TypeError or ValueError for what is not made of numbers, or has rows of several lengths.
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
    """The arguments as tensors to compute with, each in the dtype that it has.

    What has none of its own, numbers, lists and tensors of integers, takes that of the tensors and
    arrays beside it, and their device; where there are none it is float64.

    Raises ValueError, by the argument's name, for what is not made of numbers.
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
    """As `as_numbers`, of vectors (..., d): a single number is one of d = 1."""
    return tuple(t.unsqueeze(0) if t.ndim == 0 else t for t in as_numbers(**arguments))


def _bare(value: Numbers) -> bool:
    """Whether value brings no dtype of its own."""
    return not isinstance(value, Tensor) and not hasattr(value, "__array__")


def _whole(tensor: Tensor) -> bool:
    """Whether the tensor is of integers or bools."""
    return not (tensor.is_floating_point() or tensor.is_complex())
