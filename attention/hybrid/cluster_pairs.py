"""Complex exponentials for many diagonals A at once: those of all pairs of clusters.

Every entry of A is real or imaginary, A_k = B_k or i B_k with B = |A|, as in the optimal diagonal
at two centres (Hybrid Random Features eq 86 and 87). Then omega.(A u) splits into a real and an
imaginary sum over different coordinates, and A^-1 has the same form.
"""

import torch
from torch import Tensor


def pair_logarithms(
    u: Tensor, omega: Tensor, moduli: Tensor, imaginary: Tensor, *, key: bool, complex_a: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log-moduli and phases of exp(omega.w - w.w/2), w = A u, or A^-T u for keys: (..., L,
    p, m).

    u is (..., L, d) and omega (..., m, d); the moduli B and `imaginary`, True where A is imaginary,
    are (..., p, d). The phases are None without `complex_a`, when A is real.
    """
    moduli = 1 / moduli if key else moduli
    omega = omega.unsqueeze(-3)
    real_part = moduli.masked_fill(imaginary, 0)
    squares = moduli.square()
    squares = torch.where(imaginary, -squares, squares)
    log_modulus = _products(u, omega * real_part.unsqueeze(-2))
    log_modulus = log_modulus - 0.5 * (u.square() @ squares.mT).unsqueeze(-1)
    if not complex_a:
        return log_modulus, None
    # 1 / (i B) = -i / B.
    imaginary_part = moduli.masked_fill(~imaginary, 0) * (-1 if key else 1)
    return log_modulus, _products(u, omega * imaginary_part.unsqueeze(-2))


def _products(u: Tensor, vectors: Tensor) -> Tensor:
    """u (..., L, d), vectors (..., p, m, d) -> (..., L, p, m)."""
    return (u @ vectors.flatten(-3, -2).mT).unflatten(-1, vectors.shape[-3:-1])
