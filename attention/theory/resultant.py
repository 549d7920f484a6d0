"""Density of |omega_i + omega_j| by coupling: Simplex Random Features, Lemmas 4.1 and 4.2.

Rf-conformity is the mean of an increasing function of this length, so a coupling gains by a smaller
upper tail. The sum of two independent rows is distributed as sqrt(2) times one row (eq 18). Two
rows at the angle theta have lengths R cos(phi/2) and R sin(phi/2) with R distributed as chi(2d),
hence

    |omega_i + omega_j| = R sqrt(1 + cos(theta) sin(phi)),   phi of density ~ sin^(d-1) on [0, pi],

which is eq 20 as a mixture; for orthogonal rows it is chi(2d). The length of the sum of opposite
rows, such as simplex rows in two dimensions, is the difference of their lengths.
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers
from attention.options import check_count
from attention.theory.conformity import COUPLINGS
from attention.theory.special import gauss_legendre, sine_quadrature

_NODES = 256
"""Rows that are nearly opposite need more nodes than other integrals, since the mixture comes close
to 0."""


def resultant_density_at_angle(cos_theta: float, w: Numbers, dim: int) -> Tensor:
    """Return the density at w = |omega_i + omega_j| of rows at the angle theta, elementwise (eq
    20).

    Raises ValueError if cos_theta is not in [-1, 1] or dim is below 1.
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
    """Return the density at w = |omega_i + omega_j| of two rows of one block, elementwise (eq 18
    and 20).

    Raises ValueError for a coupling without a closed form, a dim below 1, or simplex rows with dim
    1.
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
    """Return the density of |a - b| for a and b distributed as chi(d) with density f: 2 E f(a + w)
    over a."""
    nodes, weights = (values.to(w) for values in gauss_legendre(_NODES))
    # The mass of chi(d) beyond a distance of 12 from sqrt(d) is less than exp(-70).
    start, end = max(0.0, math.sqrt(dim) - 12), math.sqrt(dim) + 12
    length = start + (end - start) * (nodes + 1) / 2
    both = _chi_density(length, dim) * _chi_density(length + w.unsqueeze(-1), dim)
    return ((end - start) * (weights * both).sum(-1)).masked_fill(w < 0, 0.0)


def _chi_density(r: Tensor, degrees: int) -> Tensor:
    """Return the density of chi with `degrees` degrees of freedom: r^(k-1) exp(-r^2/2) / (2^(k/2-1)
    Gamma(k/2))."""
    inside = r.clamp(min=0)
    log_constant = (degrees / 2 - 1) * math.log(2) + math.lgamma(degrees / 2)
    log_density = torch.xlogy(r.new_tensor(degrees - 1), inside) - inside.square() / 2
    return (log_density - log_constant).exp().masked_fill(r < 0, 0.0)
