"""How strongly a coupling correlates the projections: rf-conformity and its pair counts.

rho(v) = mean over i != j of E exp((omega_i + omega_j).(x + y)), v = |x + y| (Simplex Random
Features, Definition 3.1). Independent rows give exp(v^2); less is better for positive features.

Two rows at a fixed angle theta, their lengths independent and chi(d), give (eq 21)

    rho = E_phi 1F1(d; d/2; v^2 (1 + cos(theta) sin(phi)) / 2),   phi of density ~ sin^(d-1),

with cos(theta) = 0 for orthogonal (eq 23) and -1/(d-1) for simplex rows (eq 24).
"""

from torch import Tensor

from attention.conversion import Numbers, as_numbers
from attention.options import check_count
from attention.theory.special import hyp1f1_half_excess, scaled_expm1, sine_quadrature

COUPLINGS = ("iid", "orthogonal", "simplex")
"""Those with a closed form."""


def conformity_at_angle(cos_theta: float, v: Numbers, dim: int) -> Tensor:
    """rho at v = |x + y| for rows at the angle theta, elementwise (eq 21).

    Raises ValueError unless cos_theta is in [-1, 1], and for a dim below 1.
    """
    (v,) = as_numbers(v=v)
    check_count("dim", dim)
    if not -1 <= cos_theta <= 1:
        raise ValueError(f"cos_theta must be between -1 and 1, got {cos_theta}")
    square = v.square()
    return _unscaled(_scaled_excess(square, dim, cos_theta), square)


def rf_conformity(projection: str, v: Numbers, dim: int) -> Tensor:
    """rho at v = |x + y|, elementwise, for rows coupled within one block of dimension `dim`.

    Raises ValueError for a coupling without a closed form, for a dim below 1, and for simplex rows
    with dim 1.
    """
    (v,) = as_numbers(v=v)
    check_count("dim", dim)
    return pair_moment(projection, v.square(), dim)


def pair_moment(projection: str, square: Tensor, dim: int, *, even: bool = False) -> Tensor:
    """E of the product of two coupled exponentials, as a function of the squared length (any sign).

    E exp((omega_i + omega_j).z) for square = |z|^2, E cos(omega_i.z) cos(omega_j.z) for square =
    -|z|^2. `even`: of the even parts, cosh cosh or cos cos, to which simplex rows at c count as
    the mean of c and -c.
    """
    return _unscaled(_pair_excess(projection, square, dim, even=even), square)


def pair_covariance(projection: str, square: Tensor, dim: int, *, even: bool = False) -> Tensor:
    """pair_moment - exp(square), the latter for independent rows, times exp(-max(square, 0)).

    Both are 1 + square to first order (but for one-sided simplex rows), so 1 is never added.
    """
    return _pair_excess(projection, square, dim, even=even) - scaled_expm1(square)


def _pair_excess(projection: str, square: Tensor, dim: int, *, even: bool) -> Tensor:
    """(pair_moment - 1) exp(-max(square, 0)), elementwise."""
    if projection not in COUPLINGS:
        raise ValueError(
            f"projection must be one of {', '.join(COUPLINGS)} for a closed form, "
            f"got {projection!r}"
        )
    if projection == "iid":
        return scaled_expm1(square)
    if projection == "orthogonal":
        return _scaled_excess(square, dim, 0.0)
    if dim < 2:
        raise ValueError(f"projection='simplex' needs dimension 2 or more, got {dim}")
    cosine = -1 / (dim - 1)
    one_sided = _scaled_excess(square, dim, cosine)
    return (one_sided + _scaled_excess(square, dim, -cosine)) / 2 if even else one_sided


def _unscaled(excess: Tensor, square: Tensor) -> Tensor:
    """1 + excess * exp(max(square, 0)), in halves where that factor alone overflows."""
    half = (square.clamp(min=0) / 2).exp()
    return 1 + excess * half * half


def _scaled_excess(square: Tensor, dim: int, cosine: float) -> Tensor:
    """(rho_theta - 1) exp(-max(square, 0)), elementwise."""
    if cosine == 0:
        return _scaled(*hyp1f1_half_excess(dim, square / 2), square)
    sines, weights = (square.new_tensor(values) for values in sine_quadrature(dim))
    column = square.unsqueeze(-1)
    mantissa, log_scale = hyp1f1_half_excess(dim, column / 2 * (1 + cosine * sines))
    return (_scaled(mantissa, log_scale, column) * weights).sum(-1)


def _scaled(mantissa: Tensor, log_scale: Tensor, square: Tensor) -> Tensor:
    """mantissa * exp(log_scale - max(square, 0)), in halves where that factor underflows."""
    half = ((log_scale - square.clamp(min=0)) / 2).exp()
    return mantissa * half * half


def coupled_pairs(projection: str, m: int, dim: int) -> int:
    """Ordered pairs i != j that are not independent: b(b-1) in each block of b <= dim rows.

    Simplex blocks that are cut short keep the angle of whole ones.
    """
    if projection == "iid":
        return 0
    blocks, rest = divmod(m, dim)
    return blocks * dim * (dim - 1) + rest * (rest - 1)
