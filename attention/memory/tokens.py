"""Validated tokens of a memory and their features."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from attention.precision import working_dtype
from attention.products import Features
from attention.tracing import known

Entries = TypeVar("Entries", bound=tuple[Any, ...])


class Written(NamedTuple):
    """Tokens to write, in frames of L: (..., L, .) or (..., T, L, .)."""

    keys: Features
    """(..., L, F)"""
    log_scale: Tensor
    """(..., L, 1), log-scale of the key features; -inf where a token is masked."""
    values: Tensor
    """(..., L, dv)"""
    gates: Tensor | None
    """(..., L, 1)"""

    def split(self, frames: int) -> list["Written"]:
        """Split (..., T, L, .) into parts with the given numbers of frames."""
        keys, log_scales = split(self.keys, frames), self.log_scale.split(frames, -3)
        values = self.values.split(frames, -3)
        gates = [None] * len(keys) if self.gates is None else self.gates.split(frames, -3)
        return [Written(*part) for part in zip(keys, log_scales, values, gates, strict=True)]

    def frame(self) -> "Written":
        """Return the first frame, (..., L, .)."""
        return self._of(lambda t: t[..., 0, :, :])

    def moved(self, axis: int) -> "Written":
        """Frames at `axis` -> (..., T, L, .)."""
        return self._of(lambda t: t.movedim(axis, -3))

    def _of(self, change: Callable[[Tensor], Tensor]) -> "Written":
        gates = None if self.gates is None else change(self.gates)
        return Written(
            mapped(self.keys, change), change(self.log_scale), change(self.values), gates
        )


def split(features: Features, frames: int) -> list[Features]:
    """Split (..., T, L, F) into parts with the given numbers of frames; gradients are concatenated
    instead of added."""
    mantissas, logarithms = features.mantissa.split(frames, -3), features.logarithms
    if logarithms is None:
        return [Features(part) for part in mantissas]
    return [Features(*part) for part in zip(mantissas, logarithms.split(frames, -3), strict=True)]


def mapped(entries: Entries, change: Callable[[Tensor], Tensor]) -> Entries:
    """Apply a function to each tensor of a NamedTuple of tensors and None."""
    fields: Any = (None if t is None else change(t) for t in entries)
    return type(entries)(*fields)


def check_tokens(name: str, tokens: Tensor, leading: tuple[int, ...], width: int) -> None:
    """Raise ValueError unless tokens are (*leading, L, width)."""
    if tokens.ndim < 2 or tokens.shape[:-2] != leading or tokens.shape[-1] != width:
        wanted = ", ".join([*map(str, leading), "L", str(width)])
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(tokens.shape)}")


def check_written(
    keys: Tensor, values: Tensor, gates: Tensor | None, key_mask: Tensor | None
) -> None:
    """Raise ValueError unless values, gates and mask match the keys (..., L, d)."""
    if values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(
            f"values must have as many tokens as keys, {keys.shape[-2]}, got {values.shape[-2]}"
        )
    if working_dtype(values.dtype) != working_dtype(keys.dtype):
        raise ValueError(f"values must have the dtype of keys, {keys.dtype}, got {values.dtype}")
    for name, numbers in (("gates", gates), ("key_mask", key_mask)):
        if numbers is not None and numbers.shape != keys.shape[:-1]:
            raise ValueError(
                f"{name} must have shape {tuple(keys.shape[:-1])}, one number a key, got "
                f"{tuple(numbers.shape)}"
            )
    if key_mask is not None and key_mask.dtype != torch.bool:
        raise ValueError(f"key_mask must be a bool tensor, got {key_mask.dtype}")
    if gates is None:
        return
    sound = (gates >= 0) & (gates <= 1)
    if key_mask is not None:
        sound = sound | ~key_mask
    if not gates.is_floating_point() or known(sound.all()) is False:
        raise ValueError(f"gates must be numbers from 0 to 1, got other values in {gates.dtype}")
