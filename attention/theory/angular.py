"""The angular coefficient's moments and the angular hybrid's mean squared error.

Hybrid Random Features: Lemma 3.2 (moments), Theorems 3.1 and D.1 (error).
"""

import math

import torch
from torch import Tensor

from attention.theory import base as errors

_POSITIVE = {"hyperbolic": errors.hyperbolic, "positive": errors.positive}


def angle(x: Tensor, y: Tensor) -> Tensor:
    """Angle between x and y in radians, (..., d), (..., d) -> (...); accurate near 0 and pi."""
    a = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    b = y / torch.linalg.vector_norm(y, dim=-1, keepdim=True)
    difference = torch.linalg.vector_norm(a - b, dim=-1)
    return 2 * torch.atan2(difference, torch.linalg.vector_norm(a + b, dim=-1))


def lambda_moments(theta: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """E[L^2], E[(1-L)^2] and E[L(1-L)] of the estimate L of theta/pi from n independent vectors."""
    p = theta / math.pi
    first = p * (p - p / n + 1 / n)
    second = (1 - p) * (1 - p + p / n)
    return first, second, p * (1 - p) * (1 - 1 / n)


def angular_hybrid(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str,
    *,
    num_lambda_features: int = 8,
    shared_projections: bool = True,
    base: tuple[str, str] = ("hyperbolic", "trig"),
) -> Tensor:
    """Softmax kernel, independent rows; base is one of hyperbolic, positive, then trig.

    E[L^2] MSE_1 + E[(1-L)^2] MSE_2, and with shared projections 2 E[L(1-L)] Cov(S1, S2), where
    Cov = -(SM^2/m) (1 - cos(|x|^2-|y|^2)), the same for both one-sided and two-sided exponentials.
    """
    if projection != "iid":
        raise ValueError(
            f"angular_hybrid has a closed form for projection='iid' only, got {projection!r}"
        )
    if base[0] not in _POSITIVE or base[1] != "trig":
        raise ValueError(
            f"angular_hybrid has a closed form for base (hyperbolic or positive, trig), got {base}"
        )
    if num_lambda_features < 1:
        raise ValueError(f"num_lambda_features must be at least 1, got {num_lambda_features}")
    of, dim = errors.lengths(x, y), x.shape[-1]
    first, second, mixed = lambda_moments(angle(x, y), num_lambda_features)
    error = first * _POSITIVE[base[0]](of, m, "iid", dim) + second * errors.trig(of, m, "iid", dim)
    if not shared_projections:
        return error
    phase = x.square().sum(-1) - y.square().sum(-1)
    # 1 - cos(a) = 2 sin^2(a/2), exact near equal lengths.
    covariance = -(2 * (x * y).sum(-1)).exp() * 2 * (phase / 2).sin().square() / m
    return error + 2 * mixed * covariance
