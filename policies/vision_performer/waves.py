"""Sines and cosines of a number, so that a small network can represent it precisely.

Tancik et al. 2020, "Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional
Domains", with frequencies in octaves (Vaswani et al. 2017, section 3.5).
"""

import math

import torch
from torch import Tensor

__all__ = ["waves", "waves_size"]


def waves(x: Tensor, octaves: int, period: float = 2.0) -> Tensor:
    """x itself, and its sine and cosine with the periods period / 2^k for k < octaves.

    (...) -> (..., 2 octaves + 1).
    """
    x = x.unsqueeze(-1)
    angle = x * (2 * math.pi / period * 2 ** torch.arange(octaves, device=x.device))
    return torch.cat((x, angle.sin(), angle.cos()), -1)


def waves_size(octaves: int) -> int:
    """Number of outputs of `waves` per input."""
    return 2 * octaves + 1
