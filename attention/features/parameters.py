"""Parameters of maps: numbers given by users, and averages over data for `fit`."""

import torch
from torch import Tensor


def beside(
    vectors: Tensor | None, dtype: torch.dtype | None, device: torch.device | str | None
) -> Tensor:
    """What parameters take dtype and device from: the random vectors; where a hybrid keeps those,
    an empty tensor of what was asked for."""
    return torch.empty(0, dtype=dtype, device=device) if vectors is None else vectors


def given_parameter(argument: str, value: float | Tensor, heads: int | None) -> Tensor:
    """A real number, or (heads,) of them, in float64: () or (heads, 1, 1).

    Raises ValueError for another shape or an entry that is not finite.
    """
    numbers = torch.as_tensor(value, dtype=torch.float64).detach()
    if numbers.shape not in ((), (heads,)):
        allowed = "a number" if heads is None else f"a number or a tensor of shape ({heads},)"
        raise ValueError(f"{argument} must be {allowed}, got shape {tuple(numbers.shape)}")
    if not bool(numbers.isfinite().all()):
        raise ValueError(f"{argument} must be finite, got {value}")
    return shape_parameter(numbers, heads)


def shape_parameter(numbers: Tensor, heads: int | None) -> Tensor:
    """() or (heads,) -> () or (heads, 1, 1), which broadcasts over (heads, m, d)."""
    return numbers if heads is None else numbers.expand(heads).clone().reshape(heads, 1, 1)


def average(statistic: Tensor, heads: int | None, event_dims: int = 0) -> Tensor:
    """Mean over all leading dimensions but that of heads; the last `event_dims` stay too."""
    kept = event_dims + (0 if heads is None else 1)
    return statistic.flatten(0, -kept - 1).mean(0) if statistic.ndim > kept else statistic
