"""How strongly a coupling correlates the projections: rf-conformity and its pair counts.

rho(v) = mean over i != j of E exp((omega_i + omega_j).(x + y)), v = |x + y| (Simplex Random
Features, Definition 3.1). Independent rows give exp(v^2); less is better for positive features.
"""

import torch
from torch import Tensor

COUPLINGS = ("iid", "orthogonal")
"""Those with a closed form here."""


def pair_moment(projection: str, square: Tensor, dim: int) -> Tensor:
    """E of the product of two coupled exponentials, as a function of the squared length (any sign).

    E exp((omega_i + omega_j).z) for square = |z|^2, and E cos(omega_i.z) cos(omega_j.z) for
    square = -|z|^2. Orthogonal: 1F1(d; d/2; square/2) (Simplex Random Features eq 23, Theorem 4.5).
    """
    if projection == "iid":
        return square.exp()
    if projection != "orthogonal":
        raise ValueError(
            f"projection must be one of {', '.join(COUPLINGS)} for a closed form, "
            f"got {projection!r}"
        )
    return _hyp1f1_half(dim, square / 2)


def _hyp1f1_half(d: int, z: Tensor) -> Tensor:
    """1F1(d; d/2; z) elementwise, by series whose terms do not cancel.

    For z >= 0 all terms are positive. For z < 0 Kummer's exp(z) 1F1(-d/2; d/2; -z), whose
    coefficients are at most 1, so that the error is at most rounding in exp(z) exp(|z|) = 1.
    """
    positive = z >= 0
    size = z.abs()
    numerator = torch.where(positive, float(d), -d / 2).to(z)
    term = torch.ones_like(z)
    total = torch.ones_like(z)
    for k in range(10_000):
        term = term * (numerator + k) / (d / 2 + k) * size / (k + 1)
        total = total + term
        if not bool((term.abs() > torch.finfo(z.dtype).eps / 8 * total.abs()).any()):
            break
    return torch.where(positive, total, total * (-size).exp())


def coupled_pairs(projection: str, m: int, dim: int) -> int:
    """Ordered pairs i != j that are not independent: b(b-1) in each block of b <= dim rows."""
    if projection == "iid":
        return 0
    blocks, rest = divmod(m, dim)
    return blocks * dim * (dim - 1) + rest * (rest - 1)


def rf_conformity(projection: str, v: Tensor, dim: int) -> Tensor:
    """rho at v = |x + y|, elementwise, for rows coupled within one block of dimension `dim`."""
    return pair_moment(projection, v.square(), dim)
