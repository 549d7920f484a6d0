"""Parameters of maps: validation of given numbers, and averages over data for `fit`."""

import torch
from torch import Tensor

from attention.conversion import Numbers, to_tensor


def beside(
    vectors: Tensor | None, dtype: torch.dtype | None, device: torch.device | str | None
) -> Tensor:
    """Return the tensor that determines the dtype and device of parameters: the random vectors, or
    an empty tensor if a hybrid keeps the vectors."""
    return torch.empty(0, dtype=dtype, device=device) if vectors is None else vectors


def given_numbers(argument: str, value: Numbers, *, real: bool = True) -> Tensor:
    """Convert numbers, a list, an array or a tensor to float64 or complex128.

    A tensor stays on its device; other values are converted on the CPU. Raises ValueError for other
    types, and for complex numbers if `real`.
    """
    try:
        numbers = to_tensor(value)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or numbers.dtype == torch.bool or (real and numbers.is_complex()):
        kind = "real numbers" if real else "numbers"
        raise ValueError(f"{argument} must be made of {kind}, got {value!r}")
    return numbers.detach().to(torch.complex128 if numbers.is_complex() else torch.float64)


def holds(condition: Tensor) -> bool:
    """Whether all entries are True; assumed on the meta device, where there are no values."""
    return condition.is_meta or bool(condition.all())


def given_parameter(argument: str, value: Numbers, heads: int | None) -> Tensor:
    """Validate a real number or (heads,) of them; return float64 () or (heads, 1, 1).

    Raises ValueError for another type or shape, or an entry that is not finite.
    """
    numbers = given_numbers(argument, value)
    if numbers.shape not in ((), (heads,)):
        allowed = "a number" if heads is None else f"a number or a tensor of shape ({heads},)"
        raise ValueError(f"{argument} must be {allowed}, got shape {tuple(numbers.shape)}")
    if not holds(numbers.isfinite()):
        raise ValueError(f"{argument} must be finite, got {value}")
    return shape_parameter(numbers, heads)


def shape_parameter(numbers: Tensor, heads: int | None) -> Tensor:
    """() or (heads,) -> () or (heads, 1, 1), which broadcasts over (heads, m, d)."""
    return numbers if heads is None else numbers.expand(heads).clone().reshape(heads, 1, 1)


def average(statistic: Tensor, heads: int | None, event_dims: int = 0) -> Tensor:
    """Mean over all leading dimensions except heads and the last `event_dims`."""
    kept = event_dims + (0 if heads is None else 1)
    return statistic.flatten(0, -kept - 1).mean(0) if statistic.ndim > kept else statistic
