"""Orthogonal rows (Simplex Random Features, section 3; the coupling of FAVOR+).

A block is D R with R Haar on O(d) and D = diag(chi_d), drawn independently of R, so every row is
N(0, I_d) while the rows of a block are exactly orthogonal. Blocks for m > d are independent, and
the last one is truncated to m mod d rows.
"""

import torch
from torch import Tensor


def haar(blocks: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (blocks, d, d) float64, independent Haar-distributed orthogonal matrices.

    QR alone is not Haar-distributed: LAPACK's signs depend on the input and would bias one-sided
    exponential features. Multiplying columns by sign(diag R) makes the factorisation unique and Q
    Haar-distributed (Mezzadri, How to generate random matrices from the classical compact groups,
    2007).
    """
    device = generator.device if generator is not None else None
    gaussian = torch.randn(blocks, d, d, generator=generator, dtype=torch.float64, device=device)
    q, r = torch.linalg.qr(gaussian)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q)
    return q * signs.unsqueeze(-2)


def chi_norms(shape: tuple[int, ...], d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (*shape, 1) float64, independent lengths of N(0, I_d) vectors."""
    device = generator.device if generator is not None else None
    gaussian = torch.randn(*shape, d, generator=generator, dtype=torch.float64, device=device)
    return torch.linalg.vector_norm(gaussian, dim=-1, keepdim=True)


def orthogonal(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (m, d) float64, rows orthogonal within blocks of d, lengths chi_d."""
    blocks = -(-m // d)
    rotations = haar(blocks, d, generator)
    return (chi_norms((blocks, d), d, generator) * rotations).reshape(blocks * d, d)[:m]
