"""Relative errors sqrt(MSE)/SM on a sphere: curves over the angle, maxima and bounds.

Queries and keys have the same length r and angle theta; there are m independent projections and n
vectors for the angular coefficient. Hybrid Random Features, Lemma 3.4 and Theorem 3.5, whose last
term as printed lacks a factor r (the bound below holds; the printed one fails at n = 1, r = 5).
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers
from attention.options import check_count, check_positive
from attention.theory.angular import lambda_moments

_GRID = 2001
_ZOOMS = 6


def largest_base_error(r: float) -> float:
    """W(r) = exp(2 r^2) (1 - exp(-4 r^2)); the largest relative error of trig and hyperbolic is
    W(r)/sqrt(2m)."""
    return -math.exp(2 * r**2) * math.expm1(-4 * r**2)


def relative_error(name: str, theta: Numbers, r: float, m: int, n: int = 8) -> Tensor:
    """Return sqrt(MSE)/SM at angle theta in radians, elementwise.

    Args:
        name: "trig", "hyperbolic", "positive" or "angular_hybrid" (with bases hyperbolic and trig;
            at equal lengths shared projections do not change the error).
        r: length of x and y.
        m: number of projections of each base.
        n: number of vectors of the angular coefficient; ignored by other maps.

    Raises ValueError for other names, lengths that are not positive, or counts below 1.
    """
    (theta,) = as_numbers(theta=theta)
    if name not in _CURVES:
        raise ValueError(f"name must be one of {', '.join(sorted(_CURVES))}, got {name!r}")
    _check(r, m, n)
    return _CURVES[name](theta, r, m, n)


def max_relative_error(name: str, r: float, m: int, n: int = 8) -> float:
    """Return the largest `relative_error` over all angles, in float64. Arguments and exceptions are
    the same."""
    low, high = 0.0, math.pi
    best = -math.inf
    # A maximum is flat: the angle to 1e-9 gives the error to rounding. Each step divides the range
    # by 1000.
    for _ in range(_ZOOMS):
        grid = torch.linspace(low, high, _GRID, dtype=torch.float64)
        errors = relative_error(name, grid, r, m, n)
        largest = int(errors.argmax())
        best = max(best, errors[largest].item())
        low = grid[max(largest - 1, 0)].item()
        high = grid[min(largest + 1, _GRID - 1)].item()
    return best


def angular_relative_error_bound(r: float, m: int, n: int) -> float:
    """Upper bound of the angular hybrid's largest relative error, r >= 1 (Theorem 3.5, corrected).

    It is W(r)/(r sqrt(2m)) sqrt((1 - 1/n)/pi + r/(n sqrt(pi))), of order W/r only if n grows like
    r. Raises ValueError for r < 1 and counts below 1.
    """
    _check(r, m, n)
    if r < 1:
        raise ValueError(f"r must be at least 1 for this bound, got {r}")
    share = (1 - 1 / n) / math.pi + r / (n * math.sqrt(math.pi))
    return largest_base_error(r) / (r * math.sqrt(2 * m)) * math.sqrt(share)


def angular_relative_error_slope(r: float, m: int, n: int) -> float:
    """Return the limit of the angular hybrid's relative error / sqrt(theta) at 0, and / sqrt(pi -
    theta) at pi."""
    _check(r, m, n)
    return largest_base_error(r) / math.sqrt(2 * math.pi * m * n)


def _trig(theta: Tensor, r: float, m: int, n: int) -> Tensor:
    """exp(z2/2) (1 - exp(-z2)) / sqrt(2m), z2 = |x-y|^2."""
    square = 4 * r**2 * (theta / 2).sin().square()
    return -(square / 2).exp() * (-square).expm1() / math.sqrt(2 * m)


def _hyperbolic(theta: Tensor, r: float, m: int, n: int) -> Tensor:
    return _trig(math.pi - theta, r, m, n)


def _positive(theta: Tensor, r: float, m: int, n: int) -> Tensor:
    """sqrt((exp(v2) - 1) / m), v2 = |x+y|^2."""
    square = 4 * r**2 * ((math.pi - theta) / 2).sin().square()
    return (square.expm1() / m).sqrt()


def _angular_hybrid(theta: Tensor, r: float, m: int, n: int) -> Tensor:
    first, second, _ = lambda_moments(theta, n)
    parts = (
        # A coefficient of zero removes its base even if the error of that base overflows.
        torch.where(weight > 0, weight.sqrt() * error, torch.zeros_like(error))
        for weight, error in (
            (first, _hyperbolic(theta, r, m, n)),
            (second, _trig(theta, r, m, n)),
        )
    )
    return torch.hypot(*parts)


_CURVES = {
    "angular_hybrid": _angular_hybrid,
    "hyperbolic": _hyperbolic,
    "positive": _positive,
    "trig": _trig,
}


def _check(r: float, m: int, n: int) -> None:
    check_positive(r=r)
    check_count("m", m)
    check_count("n", n)
