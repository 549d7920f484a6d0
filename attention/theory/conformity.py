"""Rf-conformity, which measures how strongly a coupling correlates the projections, and its pair
counts.

rho(v) = mean over i != j of E exp((omega_i + omega_j).(x + y)), v = |x + y| (Simplex Random
Features, Definition 3.1). Independent rows give exp(v^2); smaller values are better for positive
features.

Two rows at a fixed angle theta, with independent lengths chi(d), give (eq 21)

    rho = E_phi 1F1(d; d/2; v^2 (1 + cos(theta) sin(phi)) / 2),   phi of density ~ sin^(d-1),

with cos(theta) = 0 for orthogonal (eq 23) and -1/(d-1) for simplex rows (eq 24).
"""

from torch import Tensor

from attention.conversion import Numbers, as_numbers
from attention.options import check_count
from attention.theory.special import hyp1f1_half_excess, scaled_expm1, sine_quadrature

COUPLINGS = ("iid", "orthogonal", "simplex")
"""Couplings with a closed form."""


def conformity_at_angle(cos_theta: float, v: Numbers, dim: int) -> Tensor:
    """Return rho at v = |x + y| for rows at the angle theta, elementwise (eq 21).

    Raises ValueError if cos_theta is not in [-1, 1] or dim is below 1.
    """
    (v,) = as_numbers(v=v)
    check_count("dim", dim)
    if not -1 <= cos_theta <= 1:
        raise ValueError(f"cos_theta must be between -1 and 1, got {cos_theta}")
    square = v.square()
    return _unscaled(_scaled_excess(square, dim, cos_theta), square)


def rf_conformity(projection: str, v: Numbers, dim: int) -> Tensor:
    """Return rho at v = |x + y|, elementwise, for rows coupled within one block of dimension `dim`.

    Raises ValueError for a coupling without a closed form, a dim below 1, or simplex rows with dim
    1.
    """
    (v,) = as_numbers(v=v)
    check_count("dim", dim)
    return pair_moment(projection, v.square(), dim)


def pair_moment(projection: str, square: Tensor, dim: int, *, even: bool = False) -> Tensor:
    """Return the expected product of two coupled exponentials as a function of the squared length
    (any sign).

    E exp((omega_i + omega_j).z) for square = |z|^2, E cos(omega_i.z) cos(omega_j.z) for square =
    -|z|^2. `even`: of the even parts, cosh cosh or cos cos, for which simplex rows at c are the
    mean of c and -c.
    """
    return _unscaled(_pair_excess(projection, square, dim, even=even), square)


def pair_covariance(projection: str, square: Tensor, dim: int, *, even: bool = False) -> Tensor:
    """Return (pair_moment - exp(square)) exp(-max(square, 0)); exp(square) is for independent rows.

    Both are 1 + square to first order (except one-sided simplex rows), so 1 is never added.
    """
    return _pair_excess(projection, square, dim, even=even) - scaled_expm1(square)


def _pair_excess(projection: str, square: Tensor, dim: int, *, even: bool) -> Tensor:
    """Return (pair_moment - 1) exp(-max(square, 0)), elementwise."""
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
    """Return 1 + excess * exp(max(square, 0)), in halves where that factor alone overflows."""
    half = (square.clamp(min=0) / 2).exp()
    return 1 + excess * half * half


def _scaled_excess(square: Tensor, dim: int, cosine: float) -> Tensor:
    """Return (rho_theta - 1) exp(-max(square, 0)), elementwise."""
    if cosine == 0:
        return _scaled(*hyp1f1_half_excess(dim, square / 2), square)
    sines, weights = (square.new_tensor(values) for values in sine_quadrature(dim))
    column = square.unsqueeze(-1)
    mantissa, log_scale = hyp1f1_half_excess(dim, column / 2 * (1 + cosine * sines))
    return (_scaled(mantissa, log_scale, column) * weights).sum(-1)


def _scaled(mantissa: Tensor, log_scale: Tensor, square: Tensor) -> Tensor:
    """Return mantissa * exp(log_scale - max(square, 0)), in halves where that factor underflows."""
    half = ((log_scale - square.clamp(min=0)) / 2).exp()
    return mantissa * half * half


def coupled_pairs(projection: str, m: int, dim: int) -> int:
    """Return the number of ordered pairs i != j that are not independent: b(b-1) in each block of b
    <= dim rows.

    Truncated simplex blocks keep the angle of whole blocks.
    """
    if projection == "iid":
        return 0
    blocks, rest = divmod(m, dim)
    return blocks * dim * (dim - 1) + rest * (rest - 1)
