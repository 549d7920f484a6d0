"""Hadamard rows: a fast approximation of orthogonal rows (ORF-Had of Hybrid Random Features).

A block is N R~, R~ = (H D_1)(H D_2)(H D_3), N = diag(chi), independent. It is drawn as a matrix
here; `FastProjection` applies the same vectors in O(d log d). `fast.py` describes the padding of
other sizes than powers of two and the bias.
"""

import torch
from torch import Tensor

from attention.projections.fast import FastProjection


def hadamard(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (m, d) float64, rows of (H D_1)(H D_2)(H D_3) times chi_p, p = 2^k >= d, in blocks of
    d."""
    return FastProjection("hadamard", m, d, generator, dtype=torch.float64).matrix()
