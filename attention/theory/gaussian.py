"""Gaussian coefficients: values, moments, and the Gaussian hybrid's mean squared error.

Hybrid Random Features, section 2.4 (coefficients), appendix F (eq 67 to 79, Theorems F.1, F.2). A
coefficient is a Gaussian kernel of transformed inputs, so its variance is that of the features that
estimate it.
"""

import torch
from torch import Tensor

from attention.conversion import Numbers, as_numbers, as_vectors
from attention.kernels import gaussian
from attention.options import check_count, check_positive
from attention.theory import base as errors
from attention.theory.hybrid import bipolar_mse

LAMBDA_FEATURES = ("positive", "trig")
"""Features that can estimate a coefficient."""


def gaussian_coefficient(x: Numbers, y: Numbers, M: Numbers, c: float = 1.0) -> Tensor:
    """Return lambda = exp(-|x + M y|^2 / (2 c^2)): (..., d), (..., d), (d, d) -> (...)."""
    x, y, M = _with_matrix(x, y, M)
    check_positive(c=c)
    return gaussian(x, -y @ M.mT, sigma=c)


def gaussian_coefficient_variance(
    x: Numbers, y: Numbers, n: int, M: Numbers, c: float = 1.0, *, features: str = "positive"
) -> Tensor:
    """Return the variance (...) of the coefficient's estimate from n independent vectors.

    With u = x/c, w = -M y/c and the coefficient K, it is (exp(4 u.w) - K^2)/n with positive
    features and (1 - K^2)^2/(2n) with trig features.
    """
    x, y, M = _with_matrix(x, y, M)
    check_positive(c=c)
    return _variance(x / c, -y @ M.mT / c, n, features, "iid")


def bipolar_normaliser(lambda_sigma: float, radius: float) -> Tensor:
    """Return rho = 1 - exp(-2 sigma^2 r^2), for which the bipolar coefficient is 1 at opposite
    inputs."""
    check_positive(lambda_sigma=lambda_sigma, radius=radius)
    return -torch.tensor(-2 * (lambda_sigma * radius) ** 2, dtype=torch.float64).expm1()


def bipolar_coefficient(
    x: Numbers, y: Numbers, lambda_sigma: float = 1.0, radius: float = 1.0
) -> Tensor:
    """Return lambda = (1 - exp(-sigma^2 |x-y|^2/2)) / rho: (..., d), (..., d) -> (...) (eq 67).

    It is 0 at x = y, and 1 at x = -y with |x| = |y| = radius.
    """
    x, y = as_vectors(x=x, y=y)
    rho = bipolar_normaliser(lambda_sigma, radius).to(x)
    return -(-(lambda_sigma**2) / 2 * (x - y).square().sum(-1)).expm1() / rho


def bipolar_moments(
    x: Numbers,
    y: Numbers,
    n: int,
    lambda_sigma: float = 1.0,
    radius: float = 1.0,
    *,
    features: str = "trig",
    lambda_projection: str = "iid",
) -> tuple[Tensor, Tensor, Tensor]:
    """Return E[L^2], E[(1-L)^2] and E[L(1-L)] of the bipolar coefficient's estimate from n vectors.

    Args:
        features: "trig", exact at x = y, or "positive", exact at x = -y.
        lambda_projection: coupling of the n vectors, as for the errors of these features.

    Raises ValueError for n < 1, other features, or a length that is not positive.
    """
    x, y = as_vectors(x=x, y=y)
    check_count("num_lambda_features", n)
    scaled_x, scaled_y = lambda_sigma * x, lambda_sigma * y
    variance = _variance(scaled_x, scaled_y, n, features, lambda_projection)
    return moments_at(x, y, variance, lambda_sigma, radius)


def moments_at(
    x: Tensor, y: Tensor, variance: Tensor, lambda_sigma: float, radius: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Like `bipolar_moments`, from the variance (...) of any unbiased estimate of its Gaussian."""
    rho = bipolar_normaliser(lambda_sigma, radius).to(x)
    value = bipolar_coefficient(x, y, lambda_sigma, radius)
    variance = variance / rho.square()
    rest = 1 - value
    return value.square() + variance, rest.square() + variance, value * rest - variance


def gaussian_hybrid(
    x: Tensor,
    y: Tensor,
    m: int,
    projection: str | tuple[str, str],
    kernel: str = "softmax",
    *,
    num_lambda_features: int = 8,
    lambda_sigma: float = 1.0,
    radius: float = 1.0,
    lambda_features: str = "trig",
    lambda_projection: str = "iid",
    shared_projections: bool = True,
    base: tuple[str, str] = ("hyperbolic", "trig"),
    A: float | Tensor | None = None,
) -> Tensor:
    """Mean squared error of the Gaussian hybrid: (..., d), (..., d) -> (...).

    The error is zero at x = y with trig coefficients, and at x = -y, |x| = radius, with positive
    coefficients.

    Args:
        lambda_sigma: the paper's sigma; the coefficient varies over lengths of 1/sigma.
        radius: r, the common length of queries and keys, as in `bipolar_coefficient`.
        lambda_features: features that estimate the coefficient, "trig" or "positive".
        projection, num_lambda_features, shared_projections, base, A: as in `angular_hybrid`.
        lambda_projection: coupling of the coefficient's vectors.

    Raises ValueError if there is no closed form.
    """
    moments = bipolar_moments(
        x,
        y,
        num_lambda_features,
        lambda_sigma,
        radius,
        features=lambda_features,
        lambda_projection=lambda_projection,
    )
    return bipolar_mse(
        "gaussian_hybrid",
        moments,
        x,
        y,
        m,
        projection,
        kernel,
        base=base,
        shared_projections=shared_projections,
        A=A,
    )


def _variance(u: Tensor, w: Tensor, n: int, features: str, projection: str) -> Tensor:
    """Return the variance of an estimate from n features of the Gaussian kernel of u and w."""
    if features not in LAMBDA_FEATURES:
        raise ValueError(f"features must be one of {', '.join(LAMBDA_FEATURES)}, got {features!r}")
    of = errors.lengths(u, w)
    error = errors.trig if features == "trig" else errors.positive
    return error(of, n, projection, u.shape[-1], "gaussian")


def _with_matrix(x: Numbers, y: Numbers, M: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    """Convert x, y (..., d) and M (d, d) to tensors; a number M is that multiple of the
    identity."""
    x, y, M = as_numbers(x=x, y=y, M=M)
    x, y = as_vectors(x=x, y=y)
    if M.ndim == 0:
        M = M * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return x, y, M
