"""Norm-dependent simplex rows (Simplex Random Features, section 3.2: SimRFs+).

Given the lengths w_i, the directions minimise sum_{i != j} |omega_i + omega_j|^2, the first term of
the conformity for small |x + y|. At the minimum each vector points away from the sum of the others
(eq 16). Sweeps of eq 17, omega_i <- -w_i r/|r| with r = sum_{j != i} omega_j, start from D S; a
Haar rotation afterwards makes each row N(0, I_d). There is no closed form of the error.

Blocks for m > d are independent. The last one is arranged for the m mod d rows that it keeps, so
eq 16 holds there too; two rows are then opposite, and a single one is free.
"""

import torch
from torch import Tensor

from attention.projections.orthogonal import chi_norms, haar
from attention.projections.simplex import check_simplex_dimension, simplex_matrix

MAX_SWEEPS = 50
"""Few blocks need more than 20, but for d = 3 a near-degenerate one can need hundreds."""

TOLERANCE = 1e-12
"""A sweep that moves no vector by more than this part of its block's longest ends the sweeps."""


def arrange(vectors: Tensor, max_sweeps: int = MAX_SWEEPS) -> Tensor:
    """Turn each vector (blocks, rows, d) against the sum of its block's others; lengths stay.

    Sequential within a block, batched over blocks. A vector whose others sum to zero stays as it
    is: every direction is then equally good.
    """
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    smallest_move = TOLERANCE * lengths.amax(-2)
    rows = list(vectors.unbind(-2))
    for _ in range(max_sweeps):
        before = torch.stack(rows, -2)
        total = before.sum(-2)
        for i, row in enumerate(rows):
            others = total - row
            size = torch.linalg.vector_norm(others, dim=-1, keepdim=True)
            rows[i] = torch.where(size > 0, -lengths[:, i] * others / size, row)
            total = others + rows[i]
        moves = torch.linalg.vector_norm(torch.stack(rows, -2) - before, dim=-1)
        if bool((moves <= smallest_move).all()):
            break
    return torch.stack(rows, -2)


def simplex_plus(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """(m, d) float64, each row opposite the sum of its block's others, lengths chi_d; d >= 2."""
    check_simplex_dimension(d)
    blocks = -(-m // d)
    rotations = haar(blocks, d, generator)
    lengths = chi_norms((blocks, d), d, generator)
    start = lengths * simplex_matrix(d, device=lengths.device)
    whole, rest = divmod(m, d)
    parts = []
    if whole:
        parts.append(arrange(start[:whole]) @ rotations[:whole])
    if rest:
        parts.append(arrange(start[whole:, :rest]) @ rotations[whole:])
    return torch.cat([part.reshape(-1, d) for part in parts])
