"""Upper tail of OPRF estimates with coupled rows: Chefs' Random Tables, second half of Theorem 4.2.

One term of the Gaussian kernel's estimate with A < 0 is Z = top exp(2A W), where W = |omega + c|^2
is noncentral chi-squared with d degrees of freedom and noncentrality l, and z = x + y:

    top = (1-4A)^(d/2) exp(|z|^2/2 - |z|^2/(8A) - |x|^2 - |y|^2),   l = (1-4A) |z|^2 / (16 A^2).

So U = Z/top lies in (0, 1], and its moments have the closed form

    E U^k = (1-4Ak)^(-d/2) exp(2Ak l / (1-4Ak)),

whose exponential series is the moment generating function in the Legendre transform L of the
theorem. Given the lengths of the rows, coupling does not increase any mixed moment of the terms: E
exp(|sum k_i omega_i| ...) has k_i >= 0 and directions at right or obtuse angles.
"""

import torch
from torch import Tensor

from attention.conversion import Numbers, as_vectors
from attention.kernels import check_kernel, gaussian
from attention.options import check_count, check_positive
from attention.theory import base

_LARGEST = 2000.0
"""Largest s = theta top. Every theta gives a bound, so the limit only makes the bound less sharp
near the top."""
_TERMS = 2600
"""The terms of the series of exp(s) beyond it are less than 1e-16 of its sum."""


def oprf_upper_tail_bound(
    x: Numbers, y: Numbers, num_features: int, error: float, A: float, *, kernel: str = "softmax"
) -> Tensor:
    """Bound on the probability that an OPRF estimate exceeds kernel(x, y) by `error` or more.

    (..., d), (..., d) -> (...): exp(-m L(K + error)), L(a) = sup over theta > 0 of
    theta a - log E exp(theta Z), A < 0. It holds for independent rows, for orthogonal ones
    (Theorem 4.2) and for simplex ones (ours), in blocks for m > d; 0 where no estimate is so large.

    Raises ValueError unless A < 0, error > 0 and num_features >= 1.
    """
    x, y = as_vectors(x=x, y=y)
    check_kernel(kernel)
    check_count("num_features", num_features)
    check_positive(error=error)
    if A >= 0:
        raise ValueError(f"A must be negative for a bounded feature, got {A}")
    of, dim = base.lengths(x, y), x.shape[-1]
    wide = base.Lengths(*(length.double() for length in of))
    log_top = (
        dim / 2 * torch.tensor(1 - 4 * A, dtype=torch.float64).log()
        + wide.plus / 2
        - wide.plus / (8 * A)
        - wide.norms
    ).to(wide.plus.device)
    exact = gaussian(x.double(), y.double())
    # In units of the largest term; the estimate of the softmax kernel is a scaled estimate of the
    # Gaussian.
    level = (exact + error * (-base.log_weight(wide, kernel) / 2).exp()) * (-log_top).exp()
    log_moments = _log_moments(wide.plus, dim, A)
    rate = _legendre(level.clamp(max=1.0), log_moments)
    bound = (-num_features * rate.clamp(min=0)).exp()
    return torch.where(level > 1, torch.zeros_like(bound), bound).to(of.plus.dtype)


def _log_moments(plus: Tensor, dim: int, A: float) -> Tensor:
    """Return log(E U^k / k!) for k = 0, 1, ...: |x + y|^2 (...) -> (..., terms)."""
    k = torch.arange(_TERMS, dtype=plus.dtype, device=plus.device)
    below = 1 - 4 * A * k
    noncentrality = ((1 - 4 * A) / (16 * A**2) * plus).unsqueeze(-1)
    return -dim / 2 * below.log() + 2 * A * k * noncentrality / below - torch.lgamma(k + 1)


def _legendre(level: Tensor, log_moments: Tensor) -> Tensor:
    """Return the supremum over s of s level - log E exp(s U), elementwise, by bisection of its
    slope."""
    k = torch.arange(log_moments.shape[-1], dtype=level.dtype, device=level.device)
    low = torch.full_like(level, -30.0)
    high = torch.full_like(level, _LARGEST).log()
    for _ in range(60):
        middle = (low + high) / 2
        weights = (log_moments + k * middle.unsqueeze(-1)).softmax(-1)
        # d/ds log E exp(s U) = E k / s under these weights, which grows with s.
        reached = (weights * k).sum(-1) > level * middle.exp()
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    s = low.exp()
    # Without the first term, which is 1: log1p keeps the digits for small s.
    rest = (log_moments + k * low.unsqueeze(-1))[..., 1:].logsumexp(-1)
    return s * level - torch.logaddexp(rest, torch.zeros_like(rest))
