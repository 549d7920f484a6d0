"""Norm-dependent simplex rows (Simplex Random Features, section 3.2: SimRFs+).

Given the lengths w_i, the directions minimise sum_{i != j} |omega_i + omega_j|^2, the first term of
the conformity for small |x + y|. At the minimum each vector points away from the sum of the others
(eq 16). Sweeps of eq 17, omega_i <- -w_i r/|r| with r = sum_{j != i} omega_j, start from D S; a
Haar rotation afterwards makes each row N(0, I_d). There is no closed form of the error.

Blocks for m > d are independent. The last one is arranged for its m mod d rows, so eq 16 holds
there too: two rows are opposite, and a single row is arbitrary.
"""

import torch
from torch import Tensor

from attention.projections.orthogonal import chi_norms, haar
from attention.projections.simplex import check_simplex_dimension, simplex_matrix

MAX_SWEEPS = 50
"""Few blocks need more than 20 sweeps, but for d = 3 a nearly degenerate block can need
hundreds."""

TOLERANCE = 1e-12
"""Sweeps stop when no vector moves by more than this fraction of the longest in its block."""


def arrange(vectors: Tensor, max_sweeps: int = MAX_SWEEPS) -> Tensor:
    """Turn each vector (blocks, rows, d) against the sum of the others in its block, keeping its
    length.

    The sweep is sequential within a block and batched over blocks. A vector is not changed if the
    others sum to zero: every direction is then equally good.
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
    """Draw (m, d) float64, each row opposite to the sum of the others in its block, lengths chi_d;
    d >= 2."""
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
