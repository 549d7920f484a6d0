"""Low-precision inputs are computed in float32: sums over features and tokens need more than 8 or
11 bits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import torch
from torch import Tensor, nn

_LOW = (torch.float16, torch.bfloat16)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for float16 and bfloat16, else the dtype itself."""
    return torch.float32 if dtype in _LOW else dtype


LOW_DEVICES = ("cuda",)
"""Types of devices that multiply faster in bfloat16."""


def product_dtype(x: Tensor, y: Tensor) -> torch.dtype:
    """Return the dtype of products of features with values, for queries x and keys y.

    On a GPU it is bfloat16 for tokens in bfloat16, without gradients. The relative error, 0.3 % at
    |x| = |y| = 1, is less than 4 % of the Monte-Carlo error of m = 256 and of hybrids 8 x 8; for
    shorter tokens it is as large as that of outputs in bfloat16. Features are in float32.
    """
    low = x.dtype == y.dtype == torch.bfloat16 and x.device.type in LOW_DEVICES
    return torch.bfloat16 if low and not torch.is_grad_enabled() else working_dtype(x.dtype)


def lowest(dtype: torch.dtype) -> float:
    """Return a finite logarithm for zero, such as the scale of an empty sum: the difference of two
    is 0."""
    return 0.5 * torch.finfo(dtype).min


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Context manager that disables autocast, if enabled, on the device of `like`."""
    device_type = like.device.type
    # Asking whether it is enabled raises for a device without autocast, such as meta.
    available = torch.amp.is_autocast_available(device_type)
    if available and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


class Float32Buffers(nn.Module):
    """A module whose buffers no cast reduces below float32: random vectors and fitted parameters
    are not weights, and a cast would lose their digits permanently."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, exact in before.items():
            cast = self._buffers[name]
            if cast is not None and cast.dtype in _LOW:
                self._buffers[name] = exact.to(cast.device, torch.float32)
        return self
