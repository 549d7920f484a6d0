"""Moments of the angular coefficient and the mean squared error of the angular hybrid.

Hybrid Random Features: Lemma 3.2 (moments), Theorems 3.1 and D.1 (error).
"""

import math

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.options import check_count
from attention.theory.hybrid import bipolar_mse


def angle(x: Numbers, y: Numbers) -> Tensor:
    """Return the angle between x and y in radians, (..., d), (..., d) -> (...); accurate near 0 and
    pi.

    The angle of a zero vector to any other vector is pi/2, and to itself 0: with sgn(0) = 1, the
    signs of its projections differ from those of another vector half of the time.
    """
    x, y = as_vectors(x=x, y=y)
    a, b = _direction(x), _direction(y)
    difference = torch.linalg.vector_norm(a - b, dim=-1)
    return 2 * torch.atan2(difference, torch.linalg.vector_norm(a + b, dim=-1))


def lambda_moments(theta: Numbers, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return E[L^2], E[(1-L)^2] and E[L(1-L)] of the estimate L of theta/pi from n independent
    vectors."""
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
    """Mean squared error of the angular hybrid: (..., d), (..., d) -> (...).

    Args:
        projection: coupling of the rows of the bases, one name or one per base: any coupling that
            the bases support with separate rows, "iid" with shared rows.
        num_lambda_features: n, number of vectors for the coefficient.
        shared_projections: whether both bases use the same rows. The error is E[L^2] MSE_1 +
            E[(1-L)^2] MSE_2, plus 2 E[L(1-L)] Cov(S1, S2) with shared rows.
        lambda_projection: "iid"; Lemma 3.2 requires independent vectors.
        base: (S1, S2), two of hyperbolic, oprf, positive and trig.
        A: parameter of an oprf base; default: the optimum for each pair.

    Raises ValueError if there is no closed form.
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
    """Return u / |u|, or 0 for a zero vector."""
    length = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    return u / length.masked_fill(length == 0, 1.0)
