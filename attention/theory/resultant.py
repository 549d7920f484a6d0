"""Density of |omega_i + omega_j| by coupling: Simplex Random Features, Lemmas 4.1 and 4.2.

Rf-conformity is the mean of a growing function of this length, so what a coupling takes from its
upper tail is what it gains. The sum of two independent rows is sqrt(2) times one row (eq 18). Two
rows at the angle theta have lengths R cos(phi/2) and R sin(phi/2) with R of chi(2d), hence

    |omega_i + omega_j| = R sqrt(1 + cos(theta) sin(phi)),   phi of density ~ sin^(d-1) on [0, pi],

which is eq 20 as a mixture; for orthogonal rows it is chi(2d) itself. The length of opposite rows,
simplex ones in two dimensions, is the difference of theirs.
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers
from attention.options import check_count
from attention.theory.conformity import COUPLINGS
from attention.theory.special import gauss_legendre, sine_quadrature

_NODES = 256
"""Rows that are nearly opposite need more than other integrals: the mixture comes close to 0."""


def resultant_density_at_angle(cos_theta: float, w: Numbers, dim: int) -> Tensor:
    """Density at w = |omega_i + omega_j| of rows at the angle theta, elementwise (eq 20).

    Raises ValueError unless cos_theta is in [-1, 1], and for a dim below 1.
    """
    (w,) = as_numbers(w=w)
    check_count("dim", dim)
    if not -1 <= cos_theta <= 1:
        raise ValueError(f"cos_theta must be between -1 and 1, got {cos_theta}")
    if cos_theta == 0:
        return _chi_density(w, 2 * dim)
    if cos_theta == -1:
        return _difference_density(w, dim)
    sines, weights = (w.new_tensor(values) for values in sine_quadrature(dim, _NODES))
    scale = (1 + cos_theta * sines).sqrt()
    return (weights * _chi_density(w.unsqueeze(-1) / scale, 2 * dim) / scale).sum(-1)


def resultant_density(projection: str, w: Numbers, dim: int) -> Tensor:
    """Density at w = |omega_i + omega_j| of two rows of one block, elementwise (eq 18 and 20).

    Raises ValueError for a coupling without a closed form, for a dim below 1, and for simplex rows
    with dim 1.
    """
    (w,) = as_numbers(w=w)
    check_count("dim", dim)
    if projection not in COUPLINGS:
        raise ValueError(
            f"projection must be one of {', '.join(COUPLINGS)} for a closed form, "
            f"got {projection!r}"
        )
    if projection == "iid":
        return _chi_density(w / math.sqrt(2), dim) / math.sqrt(2)
    if projection == "orthogonal":
        return resultant_density_at_angle(0.0, w, dim)
    if dim < 2:
        raise ValueError(f"projection='simplex' needs dimension 2 or more, got {dim}")
    return resultant_density_at_angle(-1 / (dim - 1), w, dim)


def _difference_density(w: Tensor, dim: int) -> Tensor:
    """Of |a - b|, both chi(d): 2 E f(a + w) over a, f their density."""
    nodes, weights = (values.to(w) for values in gauss_legendre(_NODES))
    # Beyond 12 from sqrt(d) chi(d) has less than exp(-70).
    start, end = max(0.0, math.sqrt(dim) - 12), math.sqrt(dim) + 12
    length = start + (end - start) * (nodes + 1) / 2
    both = _chi_density(length, dim) * _chi_density(length + w.unsqueeze(-1), dim)
    return ((end - start) * (weights * both).sum(-1)).masked_fill(w < 0, 0.0)


def _chi_density(r: Tensor, degrees: int) -> Tensor:
    """Of chi with `degrees` degrees of freedom: r^(k-1) exp(-r^2/2) / (2^(k/2-1) Gamma(k/2))."""
    inside = r.clamp(min=0)
    log_constant = (degrees / 2 - 1) * math.log(2) + math.lgamma(degrees / 2)
    log_density = torch.xlogy(r.new_tensor(degrees - 1), inside) - inside.square() / 2
    return (log_density - log_constant).exp().masked_fill(r < 0, 0.0)
