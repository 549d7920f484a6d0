"""Parameters with the least variance, for one pair or from averages over data.

Chefs' Random Tables: Theorem 3.3 (OPRF), eq 8 (averages), sections 3.2.1 and 3.2.2 (Poisson and
geometric). For the mean exponent of the error over many pairs, pass the averages described below.
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors

POISSON_FLOOR = 1e-6
"""Smallest returned rate: at 0 the map is degenerate."""
GEOMETRIC_FLOOR = 1e-6
"""Smallest returned 1 - p: at p = 1 the map is degenerate."""


def oprf_rho(plus_square: Numbers, dim: int) -> Tensor:
    """Return rho* in (0, 1] of OPRF at |x + y|^2, elementwise; 1 at 0 (Theorem 3.3).

    It is the positive root of 2 v2 rho^2 + (2 v2 + d) rho - d = 0, computed without cancellation.
    """
    (plus_square,) = as_numbers(plus_square=plus_square)
    doubled = 2 * plus_square
    root = ((doubled + dim).square() + 4 * dim * doubled).sqrt()
    return 2 * dim / (root + doubled + dim)


def oprf_parameter(plus_square: Numbers, dim: int) -> Tensor:
    """Return A* <= 0 of OPRF (FAVOR++) at |x + y|^2 or its average, elementwise; 0 at 0.

    A* = (1 - 1/rho*)/8, computed in the form without cancellation.
    """
    (plus_square,) = as_numbers(plus_square=plus_square)
    difference = dim - 2 * plus_square
    root = ((2 * plus_square + dim).square() + 8 * dim * plus_square).sqrt()
    small = -plus_square / (difference.clamp(min=0) + root)
    return torch.where(difference > 0, small, (difference - root) / (16 * dim))


@torch.no_grad()
def gerf_parameter(minus_square: Numbers, dim: int) -> Tensor:
    """Return the real A* >= 0 of GERF with s = -1 at |x - y|^2 or its average, elementwise; 0 at 0.

    A* = (1 - 1/rho)/8 at the root e = rho - 1 of

        d e / (2 (1 + e)(2 + e)) = z2 / (1 + exp((2 + e) z2)),

    where the derivative of the variance is zero (derived here; Theorem 3.2 with s = -1). The left
    side increases and the right side decreases up to e = sqrt 2, where the left side is greater for
    every z2. The result has no gradient.
    """
    (minus_square,) = as_numbers(minus_square=minus_square)
    low = torch.zeros_like(minus_square)
    high = torch.full_like(minus_square, math.sqrt(2))
    for _ in range(40):
        middle = (low + high) / 2
        above = _gerf_slope(middle, minus_square, dim)[0] > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    excess = high
    # Bisection fixes the absolute error; Newton's steps then the relative one of a tiny root.
    for _ in range(6):
        value, slope = _gerf_slope(excess, minus_square, dim)
        excess = (excess - value / slope).clamp(min=0)
    return excess / (8 * (1 + excess))


def _gerf_slope(excess: Tensor, square: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return left minus right side of the equation of `gerf_parameter` and its derivative in e."""
    product = (1 + excess) * (2 + excess)
    share = torch.sigmoid(-(2 + excess) * square)
    value = dim * excess / (2 * product) - square * share
    slope = dim * (2 - excess.square()) / (2 * product.square())
    return value, slope + square.square() * share * (1 - share)


def poisson_parameter(square_products: Numbers) -> Tensor:
    """Return the rate lam* = sqrt(mean over l of x_l^2 y_l^2), at least POISSON_FLOOR: (..., d) ->
    (...).

    For data pass mean_i(x_il^2) mean_j(y_jl^2), the average over all pairs.
    """
    (square_products,) = as_vectors(square_products=square_products)
    return square_products.mean(-1).clamp(min=POISSON_FLOOR**2).sqrt()


@torch.no_grad()
def geometric_parameter(products: Numbers) -> Tensor:
    """Return p* in (0, 1 - GEOMETRIC_FLOOR] of geometric features from |x_l y_l|: (..., d) ->
    (...).

    It is the root of p sum_l t_l I1(t_l)/I0(t_l) = 2 d (1 - p) with t_l = 2 |x_l y_l| / sqrt(1 -
    p), where the left side increases and the right side decreases. Bisection in log p/(1-p) keeps
    the digits at both ends. For data pass mean|x_l| mean|y_l|. The result has no gradient.
    """
    (products,) = as_vectors(products=products)
    dim = products.shape[-1]
    low = torch.full_like(products[..., 0], -60.0)
    high = -low
    for _ in range(64):
        middle = (low + high) / 2
        p, rest = torch.sigmoid(middle), torch.sigmoid(-middle)
        t = 2 * products.abs() / rest.sqrt().unsqueeze(-1)
        ratio = torch.special.i1e(t) / torch.special.i0e(t)
        above = p * (t * ratio).sum(-1) > 2 * dim * rest
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return torch.sigmoid(high).clamp(max=1 - GEOMETRIC_FLOOR)


def mean_square_of_sums(x: Numbers, y: Numbers, s: int = 1) -> Tensor:
    """Return the mean over i and j of |x_i + s y_j|^2: (..., Lx, d), (..., Ly, d) -> (...), in
    O(Ld) (eq 8).

    Raises ValueError unless s is 1 or -1.
    """
    x, y = (u.unsqueeze(0) if u.ndim == 1 else u for u in as_vectors(x=x, y=y))
    if s not in (1, -1):
        raise ValueError(f"s must be 1 or -1, got {s}")
    squares = x.square().sum(-1).mean(-1) + y.square().sum(-1).mean(-1)
    mixed = (x.mean(-2) * y.mean(-2)).sum(-1)
    # Rounding may give a mean of squares just below zero.
    return (squares + 2 * s * mixed).clamp(min=0)
