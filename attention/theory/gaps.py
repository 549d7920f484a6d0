"""Gain of coupled projections, and its limits.

Simplex Random Features: Corollary 4.4 (with the factor 2^-k missing in eq 25), Theorem 4.5,
Corollary 4.6 and section 5.1; Chefs' Random Tables, Theorem 4.1.
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_vectors
from attention.kernels import check_kernel
from attention.options import check_count
from attention.theory import base
from attention.theory.conformity import coupled_pairs, pair_covariance
from attention.theory.special import scaled_expm1

_ONE_SIDED = ("gerf", "oprf", "positive")
_COSINES = ("trig", "trig_phase")


def coupling_gap(
    name: str,
    x: Numbers,
    y: Numbers,
    num_features: int,
    projection: str = "orthogonal",
    *,
    kernel: str = "softmax",
) -> Tensor:
    """Return the error with independent rows minus the error with coupled rows: (..., d), (..., d)
    -> (...).

    It is computed from the coupled pairs, not by subtracting two errors. For one-sided exponentials
    the gap of orthogonal rows is positive unless x = -y (Corollary 4.4); for cosines it may be
    negative (Theorem 4.5).

    Args:
        name: positive, oprf or gerf with s = 1 (the same gap for any A), hyperbolic, trig or
            trig_phase.
        num_features: m, in blocks for m > d.
        projection: "orthogonal" or "simplex"; "iid" gives 0.
        kernel: "softmax" or "gaussian".

    Raises ValueError for other names.
    """
    x, y = as_vectors(x=x, y=y)
    check_kernel(kernel)
    check_count("num_features", num_features)
    of, dim = base.lengths(x, y), x.shape[-1]
    if name in _ONE_SIDED:
        return -base.exponential_pairs(of, num_features, projection, dim, kernel)
    if name == "hyperbolic":
        return -base.exponential_pairs(of, num_features, projection, dim, kernel, even=True)
    if name in _COSINES:
        return -base.cosine_pairs(of, num_features, projection, dim, kernel)
    known = ", ".join(sorted((*_ONE_SIDED, *_COSINES, "hyperbolic")))
    raise ValueError(f"the gap of a coupling is known for {known}, got {name!r}")


def orthogonality_gap_bound(
    x: Numbers, y: Numbers, num_features: int, *, kernel: str = "softmax"
) -> Tensor:
    """Lower bound on the orthogonality gap of GERF with real A, s = 1: Theorem 4.1.

    (..., d), (..., d) -> (...). (1 - 1/m) 2/(d+2) exp(-2|x|^2-2|y|^2) (exp(v2/2) - 1)^2 for the
    Gaussian kernel, v2 = |x+y|^2: with an explicit constant (derived here) and equality at leading
    order in v2. Raises ValueError unless 1 <= num_features <= d.
    """
    x, y = as_vectors(x=x, y=y)
    check_kernel(kernel)
    dim = x.shape[-1]
    if not 1 <= num_features <= dim:
        raise ValueError(f"num_features must be from 1 to dimension {dim}, got {num_features}")
    of = base.lengths(x, y)
    weight = (base.log_weight(of, kernel) - 2 * of.norms + of.plus).exp()
    constant = weight * scaled_expm1(of.plus / 2).square()
    return (1 - 1 / num_features) * 2 / (dim + 2) * constant


def mean_sine(dim: int) -> float:
    """Return E sin(phi) for phi with density ~ sin(phi)^(d-1): Gamma((d+1)/2)^2 / (Gamma(d/2)
    Gamma(d/2+1)).

    Computed by its recurrence in steps of two from 2/pi (d = 1) and pi/4 (d = 2), without large
    Gammas.
    """
    start = 2 / math.pi if dim % 2 else math.pi / 4
    steps = range(2 - dim % 2, dim, 2)
    return math.prod(((k + 1) ** 2 / (k * (k + 2)) for k in steps), start=start)


def small_sum_factor(
    projection: str, num_features: int, dim: int, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return kappa of positive features: m exp(2|x|^2+2|y|^2) MSE = kappa |x+y|^2 + O(|x+y|^4).

    For the Gaussian kernel, kappa is 1 for iid and orthogonal rows and 1 - (pairs/m) E sin(phi) /
    (d-1) for simplex rows, about 1/(2d) for m = d: the gain is largest for small sums (section
    5.1).

    Raises ValueError for a coupling without a closed form.
    """
    check_count("num_features", num_features)
    # Raises ValueError for a coupling without a closed form and for simplex rows in dim 1.
    pair_covariance(projection, torch.zeros(()), dim)
    kappa = 1.0
    if projection == "simplex":
        pairs = coupled_pairs(projection, num_features, dim)
        kappa -= pairs / num_features / (dim - 1) * mean_sine(dim)
    return torch.tensor(kappa, dtype=dtype)


def trig_asymptotic_ratio(x: Numbers, y: Numbers, num_features: int) -> Tensor:
    """Return the error of trig with orthogonal rows divided by that with iid rows, to first order
    in 1/d.

    (..., d), (..., d) -> (...): 1 - (m-1) z2^2 exp(-z2) / (d (1-exp(-z2))^2), z2 = |x-y|^2, either
    kernel (Corollary 4.6); 1 - (m-1)/d at x = y. Raises ValueError unless 1 <= num_features <= d.
    """
    x, y = as_vectors(x=x, y=y)
    dim = x.shape[-1]
    if not 1 <= num_features <= dim:
        raise ValueError(f"num_features must be from 1 to dimension {dim}, got {num_features}")
    minus = base.lengths(x, y).minus
    # z2 exp(-z2/2) / (1 - exp(-z2)) = (z2/2) / sinh(z2/2), which tends to 1.
    half = minus / 2
    small = half < 1e-4
    safe = torch.where(small, torch.ones_like(half), half)
    decay = torch.where(
        small, 1 - half.square() / 6, 2 * safe * (-safe).exp() / -(-2 * safe).expm1()
    )
    return 1 - (num_features - 1) / dim * decay.square()
