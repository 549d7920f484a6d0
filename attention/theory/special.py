"""Special functions that are accurate near 0 and do not overflow far from it."""

import math
from functools import cache

import torch
from torch import Tensor


def scaled_expm1(t: Tensor) -> Tensor:
    """Return (exp(t) - 1) exp(-max(t, 0)), elementwise: between -1 and 1, accurate near 0."""
    return torch.where(t > 0, -(-t.clamp(min=0)).expm1(), t.clamp(max=0).expm1())


def log_bessel_i0(t: Tensor) -> Tensor:
    """Return log I0(t) for t >= 0, elementwise."""
    return torch.special.i0e(t).log() + t


def hyp1f1_half_excess(dim: int, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1F1(d; d/2; z) - 1 as mantissa * exp(log_scale), elementwise, by a series.

    For z >= 0 all terms are positive. For z < 0 Kummer's transformation exp(z) 1F1(-d/2; d/2; -z)
    has coefficients of at most 1, so the error is at most rounding in exp(z) exp(|z|) = 1.
    """
    positive = z >= 0
    size = z.abs()
    numerator = torch.where(positive, float(dim), -dim / 2).to(z)
    finfo = torch.finfo(z.dtype)
    limit = finfo.max**0.5
    term = torch.ones_like(z)
    total = torch.zeros_like(z)
    log_scale = torch.zeros_like(z)
    for k in range(100_000):
        term = term * ((numerator + k) / ((dim / 2 + k) * (k + 1)) * size)
        total = total + term
        if not bool((term.abs() > finfo.eps / 8 * total.abs()).any()):
            break
        large = total.abs() > limit
        if bool(large.any()):
            factor = torch.where(large, z.new_tensor(1 / limit), z.new_tensor(1.0))
            term, total = term * factor, total * factor
            log_scale = log_scale - factor.log()
    negative = (-size).expm1() + total * (log_scale - size).exp()
    zero = torch.zeros_like(z)
    return torch.where(positive, total, negative), torch.where(positive, log_scale, zero)


@cache
def sine_quadrature(dim: int, count: int = 64) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return values of sin(phi) and weights for phi with density ~ sin(phi)^(d-1) on [0, pi].

    They are `count` Gauss-Legendre nodes on the half interval [pi/2, pi/2 + w]; for large d, w is
    where the density falls below exp(-60).
    """
    nodes, weights = gauss_legendre(count)
    width = min(math.pi / 2, 11 / math.sqrt(dim))
    sines = ((nodes + 1) / 2 * width).cos()
    density = weights * sines ** (dim - 1)
    return tuple(sines.tolist()), tuple((density / density.sum()).tolist())


@cache
def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [-1, 1], float64 on the CPU, from the eigenvectors
    of the Jacobi matrix (Golub, Welsch)."""
    with torch.device("cpu"):
        k = torch.arange(1.0, count, dtype=torch.float64)
        off_diagonal = k / (4 * k.square() - 1).sqrt()
        nodes, vectors = torch.linalg.eigh(off_diagonal.diag(1) + off_diagonal.diag(-1))
        return nodes, 2 * vectors[0].square()
