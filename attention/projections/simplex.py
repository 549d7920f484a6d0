"""Simplex rows (Simplex Random Features, section 3.1): all pairs of a block at the widest angle.

A block is D S R: R Haar on O(d), D = diag(chi_d) independent of R, and S the unit vectors from the
centre of a regular simplex to its d corners (eq 9), so every row is N(0, I_d) while the cosine of
each pair is -1/(d-1). Blocks for m > d are independent; the last one is truncated to m mod d rows.

This coupling reduces the error of one-sided exponential features. For even functions of omega
(cosh, cos) it is worse than orthogonal rows.
"""

import math

import torch
from torch import Tensor

from attention.projections.orthogonal import chi_norms, haar


def check_simplex_dimension(d: int) -> None:
    """Raise ValueError for d = 1, where a simplex has no directions."""
    if d < 2:
        raise ValueError(f"d must be at least 2 for a simplex projection, got {d}")


def simplex_product(x: Tensor) -> Tensor:
    """Compute S x over the last dimension, (..., d) -> (..., d), in O(d) (algorithm 1).
    Differentiable.

    Raises ValueError for d below 2.
    """
    d = x.shape[-1]
    check_simplex_dimension(d)
    first = x[..., :-1]
    last = first.sum(-1, keepdim=True) * math.sqrt(1 / (d - 1))
    rest = math.sqrt(d / (d - 1)) * first - (math.sqrt(d) + 1) / (d - 1) * last
    return torch.cat((rest, last), -1)


def simplex_matrix(
    d: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Return S (d, d), eq 9: unit rows, pairwise cosines -1/(d-1), last column 0. Default dtype
    float64.

    Raises ValueError for d below 2.
    """
    return simplex_product(torch.eye(d, dtype=dtype or torch.float64, device=device)).mT


def simplex(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (m, d) float64, pairwise cosines -1/(d-1) within blocks of d, lengths chi_d; d at least
    2."""
    check_simplex_dimension(d)
    blocks = -(-m // d)
    # S acts on the columns of R: O(d^2) a block instead of the O(d^3) of a matrix product.
    directions = simplex_product(haar(blocks, d, generator).mT).mT
    return (chi_norms((blocks, d), d, generator) * directions).reshape(blocks * d, d)[:m]
