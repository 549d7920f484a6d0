"""Low precision in, float32 inside: sums over features and tokens need more than 8 or 11 bits."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_LOW = (torch.float16, torch.bfloat16)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for float16 and bfloat16, else the dtype itself."""
    return torch.float32 if dtype in _LOW else dtype


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Turn autocast off, where it is on, for products of tensors on `like`'s device."""
    device_type = like.device.type
    # Asking whether it is enabled raises for a device without autocast, such as meta.
    available = torch.amp.is_autocast_available(device_type)
    if available and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
