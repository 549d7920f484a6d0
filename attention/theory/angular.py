"""The angular coefficient's moments and the angular hybrid's mean squared error.

Hybrid Random Features: Lemma 3.2 (moments), Theorems 3.1 and D.1 (error).
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.options import check_count
from attention.theory.hybrid import bipolar_mse


def angle(x: Numbers, y: Numbers) -> Tensor:
    """Angle between x and y in radians, (..., d), (..., d) -> (...); accurate near 0 and pi.

    A zero vector is at pi/2 to any other and at 0 to itself: with sgn(0) = 1, the signs of its
    projections differ from another's half of the time, from its own never.
    """
    x, y = as_vectors(x=x, y=y)
    a, b = _direction(x), _direction(y)
    difference = torch.linalg.vector_norm(a - b, dim=-1)
    return 2 * torch.atan2(difference, torch.linalg.vector_norm(a + b, dim=-1))


def lambda_moments(theta: Numbers, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """E[L^2], E[(1-L)^2] and E[L(1-L)] of the estimate L of theta/pi from n independent vectors."""
    (theta,) = as_numbers(theta=theta)
    p = theta / math.pi
    first = p * (p - p / n + 1 / n)
    second = (1 - p) * (1 - p + p / n)
    return first, second, p * (1 - p) * (1 - 1 / n)


def angular_hybrid(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str | tuple[str, str],
    kernel: str = "softmax",
    *,
    num_lambda_features: int = 8,
    shared_projections: bool = True,
    lambda_projection: str = "iid",
    base: tuple[str, str] = ("hyperbolic", "trig"),
    A: float | Tensor | None = None,
) -> Tensor:
    """(..., d), (..., d) -> (...): E[L^2] MSE_1 + E[(1-L)^2] MSE_2 + sharing.

    Args:
        projection: coupling of the bases' rows, one name or one for each: any that the bases have
            with their own rows, "iid" with shared ones.
        num_lambda_features: n, vectors for the coefficient.
        shared_projections: both bases use the same rows, which adds 2 E[L(1-L)] Cov(S1, S2).
        lambda_projection: "iid"; Lemma 3.2 needs independent vectors, whatever the bases have.
        base: (S1, S2), two of hyperbolic, oprf, positive and trig.
        A: parameter of an oprf base; None is the pair's optimum.

    Raises ValueError for what has no closed form.
    """
    if lambda_projection != "iid":
        raise ValueError(
            "angular_hybrid has a closed form for lambda_projection='iid' only, "
            f"got {lambda_projection!r}"
        )
    check_count("num_lambda_features", num_lambda_features)
    return bipolar_mse(
        "angular_hybrid",
        lambda_moments(angle(x, y), num_lambda_features),
        x,
        y,
        m,
        projection,
        kernel,
        base=base,
        shared_projections=shared_projections,
        A=A,
    )


def _direction(u: Tensor) -> Tensor:
    """u / |u|, and 0 for a zero vector."""
    length = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    return u / length.masked_fill(length == 0, 1.0)
