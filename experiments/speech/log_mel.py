"""Log-mel frames of sound: the power of a short window in mel bands."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from experiments.data.fsdd import RATE_HZ

__all__ = ["LogMel"]

_WINDOW, _HOP = 256, 80
"""Samples: 32 ms, every 10 ms at 8 kHz."""
_FLOOR = 1e-6


class LogMel(nn.Module):
    """Frames whose mean is 0 and whose deviation is 1 over a string's frames and bands."""

    window: Tensor
    bank: Tensor

    def __init__(self, mels: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(_WINDOW), persistent=False)
        self.register_buffer("bank", _bank(mels), persistent=False)

    def forward(self, waves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, samples), (batch,) -> frames (batch, frames, mels), zeros behind a string's end,
        and how many each string has, (batch,). Silence after a string has no effect."""
        short = _WINDOW - waves.shape[1]
        waves = nn.functional.pad(waves, (0, max(short, 0)))
        spectrum = torch.stft(waves, _WINDOW, _HOP, window=self.window, center=False,
                              return_complex=True)  # fmt: skip
        power = (spectrum.real.square() + spectrum.imag.square()).mT
        frames = (power @ self.bank + _FLOOR).log()
        counts = 1 + (lengths - _WINDOW).clamp(min=0) // _HOP
        places = torch.arange(frames.shape[1], device=frames.device)
        inside = (places < counts.unsqueeze(1)).unsqueeze(2)
        entries = (counts * frames.shape[2]).reshape(-1, 1, 1)
        mean = frames.where(inside, 0).sum((1, 2), keepdim=True) / entries
        centred = (frames - mean).where(inside, 0)
        deviation = (centred.square().sum((1, 2), keepdim=True) / entries).sqrt()
        return centred / deviation.clamp(min=_FLOOR), counts


def _bank(mels: int) -> Tensor:
    """Triangles (frequencies, mels), even on the mel scale 2595 log10(1 + f / 700 Hz)."""
    top = 2595 * math.log10(1 + RATE_HZ / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
    frequencies = torch.linspace(0, RATE_HZ / 2, _WINDOW // 2 + 1).unsqueeze(1)
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0)
