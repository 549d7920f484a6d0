"""Fast simplex rows (Simplex Random Features, section 4.2): simplex rows without a Haar rotation.

A block is N S R~, R~ = (H D_1)(H D_2)(H D_3), N = diag(chi), independent. It is drawn as a matrix
here; `FastProjection` applies the same vectors in O(d log d). `fast.py` describes the padding of
other sizes than powers of two and the bias.
"""

import torch
from torch import Tensor

from attention.projections.fast import FastProjection


def fast_simplex(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (m, d) float64, rows of S (H D_1)(H D_2)(H D_3) times chi_p, p = 2^k >= d >= 2."""
    return FastProjection("fast_simplex", m, d, generator, dtype=torch.float64).matrix()
