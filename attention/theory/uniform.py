"""Bounds on the largest error over a domain, for trig and trig_phase and the Gaussian kernel.

On the Error of Random Fourier Features. A domain of diameter ell in R^d, kernel exp(-|x-y|^2/(2
sigma^2)), F rows of features (the paper's D): F/2 projections of `trig` (its phi) or F of
`trig_phase` (its psi). The poster omits the constants beta and misprints two formulas. The formulas
here are derived from a covering of the domain: the exponent of `trig_phase` has d + 1 instead of d
+ 2, and all terms of the concentration bounds grow with F.
"""

import math

import torch

from attention.options import check_count, check_positive
from attention.theory.special import gauss_legendre

MAPS = ("trig", "trig_phase")
"""The paper's phi and psi."""

GAMMA = {"trig": 0.964, "trig_phase": 1.55}
"""Constants of the expected maximum from the poster, not derived here; for trig_phase it states 0.8
< gamma' < 1.55, of which this is the conservative end."""


def uniform_constant(name: str, dim: int) -> float:
    """Return beta_d (trig) or beta'_d (trig_phase) of `uniform_bound`.

    beta_d = [(d/2)^(-d/(d+2)) + (d/2)^(2/(d+2))] 2^((6d+2)/(d+2)), at most 66 (d = 64);
    beta'_d = [d^(-d/(d+1)) + d^(1/(d+1))] 2^((5d+1)/(d+1)) 3^(d/(d+1)), at most 98 (d = 48).
    """
    _check(name, dim=dim)
    d = dim
    if name == "trig":
        terms = (d / 2) ** (-d / (d + 2)) + (d / 2) ** (2 / (d + 2))
        return terms * 2.0 ** ((6 * d + 2) / (d + 2))
    terms = d ** (-d / (d + 1)) + d ** (1 / (d + 1))
    return terms * 2.0 ** ((5 * d + 1) / (d + 1)) * 3.0 ** (d / (d + 1))


def largest_cosine_variance(diameter: float, sigma: float = 1.0) -> float:
    """Return the supremum of 2 Var cos(omega.delta) over |delta| <= diameter: (1 -
    exp(-ell^2/sigma^2))^2."""
    _check(diameter=diameter, sigma=sigma)
    return math.expm1(-((diameter / sigma) ** 2)) ** 2


def uniform_bound(
    name: str, dim: int, diameter: float, rows: int, epsilon: float, sigma: float = 1.0
) -> float:
    """Bound on P(largest error >= epsilon). It is not capped and may exceed 1.

    trig: beta_d (s ell/eps)^(2/(1+2/d)) exp(-F eps^2/(8 (d+2) alpha)), alpha = min(1, w/2 + eps/3);
    trig_phase: beta'_d (s ell/eps)^(2/(1+1/d)) exp(-F eps^2/(32 (d+1) alpha')),
    alpha' = min(1, (1+w)/8 + eps/6); s^2 = E|omega|^2 = d/sigma^2, w = `largest_cosine_variance`.

    Raises ValueError for other names and arguments that are not positive.
    """
    _check(name, dim=dim, diameter=diameter, rows=rows, epsilon=epsilon, sigma=sigma)
    variance = largest_cosine_variance(diameter, sigma)
    if name == "trig":
        alpha = min(1.0, variance / 2 + epsilon / 3)
        power, rate = 2 / (1 + 2 / dim), 8 * (dim + 2) * alpha
    else:
        alpha = min(1.0, (1 + variance) / 8 + epsilon / 6)
        power, rate = 2 / (1 + 1 / dim), 32 * (dim + 1) * alpha
    reach = math.sqrt(dim) / sigma * diameter / epsilon
    return uniform_constant(name, dim) * reach**power * math.exp(-rows * epsilon**2 / rate)


def kernel_lipschitz(sigma: float = 1.0) -> float:
    """Lipschitz constant exp(-1/2)/sigma of the Gaussian kernel in x - y."""
    _check(sigma=sigma)
    return math.exp(-0.5) / sigma


def expected_largest_projection(dim: int, count: int) -> float:
    """Return E max |omega_i| over `count` independent N(0, I_d) vectors, accurate to about 1e-13.

    It is the integral over r of 1 - P(d/2, r^2/2)^count, where P is the regularised lower
    incomplete gamma function.
    """
    _check(dim=dim, count=count)
    # Beyond `end`, count * P(|omega| > r) <= count * exp(-(r - sqrt d)^2/2) is below 1e-18.
    end = math.sqrt(dim) + math.sqrt(2 * (math.log(count) + 42))
    nodes, weights = gauss_legendre(16)
    edges = torch.linspace(0, end, 129, dtype=torch.float64, device="cpu")
    width = edges[1] - edges[0]
    r = edges[:-1, None] + width * (nodes + 1) / 2
    # 1 - P(all are shorter) = 1 - (1 - above)^count.
    reached = -(count * (-_chi_tail(dim, r)).log1p()).expm1()
    return float((reached * weights).sum() * width / 2)


def expected_max_error_bound(
    name: str,
    dim: int,
    diameter: float,
    rows: int,
    sigma: float = 1.0,
    gamma: float | None = None,
) -> float:
    """Bound on the expected largest error: 24 gamma sqrt(d) ell / sqrt(F) (L + E max|omega_i|).

    The constant is 48 for trig_phase, whose maximum is over F projections instead of F/2; L is
    `kernel_lipschitz`; gamma defaults to `GAMMA`. The bound is loose by two orders of magnitude.
    Raises ValueError for other names, arguments that are not positive, or an odd number of rows for
    trig.
    """
    _check(name, dim=dim, diameter=diameter, rows=rows, sigma=sigma)
    factor, count = 24 if name == "trig" else 48, projections(name, rows)
    constant = GAMMA[name] if gamma is None else gamma
    slope = kernel_lipschitz(sigma) + expected_largest_projection(dim, count) / sigma
    return factor * constant * math.sqrt(dim) * diameter / math.sqrt(rows) * slope


def concentration_bound(
    name: str, rows: int, expected_max: float, epsilon: float, variance: float = 1.0
) -> float:
    """Bound on P(largest error >= its expectation E + epsilon), after Bousquet.

    trig: exp(-F eps^2 / (16 E + 2 w + 8 eps/3));
    trig_phase: exp(-F eps^2 / (12 E + 1 + w + 2 eps)).

    Args:
        expected_max: E, the expected largest error.
        variance: w, see `largest_cosine_variance`; 1 is valid for any domain.
    """
    _check(name, rows=rows, expected_max=expected_max, epsilon=epsilon, variance=variance)
    if name == "trig":
        scale = 16 * expected_max + 2 * variance + 8 / 3 * epsilon
    else:
        scale = 12 * expected_max + 1 + variance + 2 * epsilon
    return math.exp(-rows * epsilon**2 / scale)


def projections(name: str, rows: int) -> int:
    """Return the number of frequencies of `rows` feature rows: half as many for trig, as many for
    trig_phase.

    Raises ValueError for other names, an invalid number of rows, or an odd number for trig.
    """
    check_name(name)
    check_count("rows", rows)
    if name == "trig" and rows % 2:
        raise ValueError(f"rows must be even for trig, got {rows}")
    return rows // 2 if name == "trig" else rows


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is "trig" (phi) or "trig_phase" (psi)."""
    if name not in MAPS:
        raise ValueError(f"name must be one of {', '.join(MAPS)}, got {name!r}")


def _chi_tail(dim: int, r: torch.Tensor) -> torch.Tensor:
    """Return P(|omega| > r) = Q(d/2, h), h = r^2/2, elementwise, accurate to about 1e-13.

    Uses Q(a+1, h) = Q(a, h) + h^a exp(-h)/Gamma(a+1), whose terms are positive; torch's gammaincc
    is accurate to only ten digits.
    """
    half = r.square() / 2
    tail = torch.zeros_like(r) if dim % 2 == 0 else half.sqrt().erfc()
    for twice in range(dim % 2, dim, 2):
        a = twice / 2
        tail = tail + (a * half.log() - half - math.lgamma(a + 1)).exp()
    # Rounding may give 1 + 1e-16 near r = 0.
    return tail.clamp(max=1.0)


def _check(name: str | None = None, **values: float) -> None:
    if name is not None:
        check_name(name)
    check_positive(**values)
