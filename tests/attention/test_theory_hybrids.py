"""Hybrids against Gauss-Hermite quadrature of their definitions in d = 2.

Nothing here is random: expectations over a projection are sums over 80 x 80 nodes, those over the
angular coefficient are binomial sums.
"""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from attention import theory
from attention.theory.hybrid import BASES, base_mse
from tests.attention.cases import (
    COMPLEX,
    LINE,
    LINE_WEIGHT,
    OMEGA,
    REAL,
    SM,
    WEIGHT,
    X,
    Y,
    complex_estimate,
    expectation,
)
from tests.pairwise import pairwise

OPRF_A = -0.3
ONE_SIDED = ("hyperbolic", "oprf", "positive")


def oprf(x: Tensor, y: Tensor, a: float = OPRF_A) -> Tensor:
    """(1-4A)^(d/2) exp(2A|omega|^2 + sqrt(1-4A) omega.(x+y) - (|x|^2+|y|^2)/2)."""
    exponent = 2 * a * OMEGA.square().sum(-1) + math.sqrt(1 - 4 * a) * OMEGA @ (x + y)
    return (1 - 4 * a) * (exponent - (x @ x + y @ y) / 2).exp()


def half_squares(x: Tensor, y: Tensor) -> Tensor:
    return (x @ x + y @ y) / 2


ESTIMATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hyperbolic": lambda x, y: (OMEGA @ (x + y)).cosh() * (-half_squares(x, y)).exp(),
    "oprf": oprf,
    "positive": lambda x, y: (OMEGA @ (x + y) - half_squares(x, y)).exp(),
    "trig": lambda x, y: (OMEGA @ (x - y)).cos() * half_squares(x, y).exp(),
}


def test_kernels_and_long_inputs():
    """The Gaussian kernel is the softmax kernel times a weight; dtypes and shapes are kept."""
    weight = (-(X @ X) - Y @ Y).exp()
    for name, options in (
        ("complex_exponential", {"A": COMPLEX}),
        ("angular_hybrid", {"base": ("oprf", "trig")}),
        ("gaussian_hybrid", {"lambda_sigma": 0.7}),
        ("clustered_hybrid", {"query_centers": X[None], "key_centers": Y[None] + 0.1}),
    ):
        computed = theory.mse(name, X, Y, 3, kernel="gaussian", **options)
        assert_close(computed, theory.mse(name, X, Y, 3, **options) * weight, rtol=1e-12, atol=0)
    # |x| = 24: the hybrid is exact at angles 0 and pi where the base without weight overflows.
    x = torch.full((64,), 3.0, dtype=torch.float64)
    for y in (x, -x):
        assert theory.mse("angular_hybrid", x, y, 8, kernel="gaussian") < 1e-12
    options = {"query_centers": x[None], "key_centers": x[None]}
    assert theory.mse("clustered_hybrid", x, x, 8, kernel="gaussian", **options) == 0
    trig = theory.mse("trig", x, 1.01 * x, 8, kernel="gaussian")
    turned = theory.mse("complex_exponential", x, 1.01 * x, 8, kernel="gaussian", A=1j)
    assert_close(turned, trig, rtol=1e-9, atol=0)
    assert theory.mse("complex_exponential", x, x, 8, kernel="gaussian", A=1.0) == math.inf
    for dtype in (torch.float32, torch.float64):
        x, y = torch.full((3, 1, 2), 0.4, dtype=dtype), torch.full((5, 2), 0.3, dtype=dtype)
        for name, options in (
            ("complex_exponential", {"A": COMPLEX}),
            ("complex_exponential", {"A": REAL}),
            ("gaussian_hybrid", {}),
            ("clustered_hybrid", {"query_centers": x[0], "key_centers": y}),
            ("angular_hybrid", {"base": ("oprf", "hyperbolic")}),
        ):
            error = theory.mse(name, x, y, 4, **options)
            assert error.dtype == dtype
            assert error.shape == (3, 5)


@pytest.mark.parametrize("names", list(itertools.product(BASES, repeat=2)))
def test_covariance_of_bases_against_quadrature(names):
    first, second = (ESTIMATES[name](X, Y) for name in names)
    expected = expectation(first * second) - SM**2
    computed = theory.shared_covariance(*names, X, Y, A=OPRF_A)
    assert_close(computed, expected, rtol=1e-9, atol=1e-14)
    if names[0] == names[1]:
        own = base_mse(names[0], X, Y, 4, "iid", A=OPRF_A)
        assert_close(own, expected / 4, rtol=1e-9, atol=0)


def angular_distribution(n: int) -> tuple[Tensor, Tensor]:
    """Values of L and their probabilities."""
    p = theory.angle(X, Y).item() / math.pi
    k = range(n + 1)
    probabilities = [math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in k]
    values = torch.arange(n + 1, dtype=torch.float64) / n
    return values, torch.tensor(probabilities, dtype=torch.float64)


def error_by_definition(
    values: Tensor, probabilities: Tensor, first: Tensor, second: Tensor, shared: bool
) -> Tensor:
    """E (L S1 + (1-L) S2 - SM)^2, one projection, or one for each base."""
    weight = probabilities.unsqueeze(-1)
    lam = values.unsqueeze(-1)
    if shared:
        return (weight * WEIGHT * (lam * first + (1 - lam) * second - SM).square()).sum()
    a, b = first - SM, second - SM
    own = lam.square() * a.square() + (1 - lam).square() * b.square()
    return (weight * WEIGHT * own).sum()


@pytest.mark.parametrize(
    ("base", "shared"),
    list(
        zip(itertools.product(BASES, repeat=2), itertools.cycle([True, False, False, True, False]))
    ),
)
def test_angular_hybrid_by_definition(base, shared):
    """Every pair of bases; independent means of m = 3 have a third of the error."""
    for n in (1, 4):
        values, probabilities = angular_distribution(n)
        first, second = (ESTIMATES[name](X, Y) for name in base)
        expected = error_by_definition(values, probabilities, first, second, shared)
        for m in (1, 3):
            options = {"num_lambda_features": n, "shared_projections": shared, "base": base}
            options |= {"A": OPRF_A}
            computed = theory.mse("angular_hybrid", X, Y, m, **options)
            assert_close(computed, expected / m, rtol=1e-9, atol=0)


@pytest.mark.parametrize("projection", ["orthogonal", "simplex"])
@pytest.mark.parametrize("one_sided", ["positive", "oprf"])
def test_coupled_bases_with_projections_of_their_own(projection, one_sided):
    m, n, generator = 5, 3, torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64) / 2
    first, second, _ = theory.lambda_moments(theory.angle(x, y), n)
    own = theory.mse(one_sided, x, y, m, projection=projection)
    other = theory.mse("trig", x, y, m, projection=projection)
    options = {"projection": projection, "num_lambda_features": n, "shared_projections": False}
    options |= {"base": (one_sided, "trig")}
    computed = theory.mse("angular_hybrid", x, y, m, **options)
    assert_close(computed, first * own + second * other, rtol=1e-12, atol=0)
    settings = {"projection": (projection, "iid"), "num_lambda_features": n}
    settings |= {"shared_projections": False, "base": (one_sided, "trig")}
    mixed = theory.mse("angular_hybrid", x, y, m, **settings)
    assert_close(mixed, first * own + second * theory.mse("trig", x, y, m), rtol=1e-12, atol=0)
    gaussian = theory.mse(
        "gaussian_hybrid", x, y, m, projection=projection, shared_projections=False
    )
    moments = theory.bipolar_moments(x, y, 8)
    own = theory.mse("hyperbolic", x, y, m, projection=projection)
    assert_close(gaussian, moments[0] * own + moments[1] * other, rtol=1e-12, atol=0)


def bipolar_values(sigma: float, radius: float, features: str) -> Tensor:
    """L from one vector, at every node of its only direction that counts, x - y or x + y."""
    rho = 1 - math.exp(-2 * sigma**2 * radius**2)
    if features == "trig":
        return (1 - (sigma * LINE * (X - Y).norm()).cos()) / rho
    return (1 - (sigma * LINE * (X + Y).norm() - (sigma**2 * (X @ X + Y @ Y))).exp()) / rho


@pytest.mark.parametrize("features", ["trig", "positive"])
def test_gaussian_coefficients_against_quadrature(features):
    sigma, radius = 0.8, 0.65
    values = bipolar_values(sigma, radius, features)
    mean = (LINE_WEIGHT * values).sum()
    assert_close(theory.bipolar_coefficient(X, Y, sigma, radius), mean, rtol=1e-10, atol=0)
    variance = (LINE_WEIGHT * (values - mean).square()).sum()
    for n in (1, 4):
        expected = (mean**2 + variance / n, (1 - mean) ** 2 + variance / n)
        computed = theory.bipolar_moments(X, Y, n, sigma, radius, features=features)
        assert_close(computed[:2], expected, rtol=1e-10, atol=0)
        assert_close(computed[2], mean * (1 - mean) - variance / n, rtol=1e-10, atol=0)
    # Of u = x/c and w = -M y/c.
    M, c = torch.tensor([[0.2, -1.0], [0.7, 0.4]], dtype=torch.float64), 1.3
    u, w = X / c, -(M @ Y) / c
    if features == "trig":
        values = (OMEGA @ (u - w)).cos()
    else:
        values = (OMEGA @ (u + w) - u @ u - w @ w).exp()
    lam = theory.gaussian_coefficient(X, Y, M, c)
    assert_close(expectation(values), lam, rtol=1e-10, atol=0)
    assert lam.item() == pytest.approx(math.exp(-((X + M @ Y).square().sum()) / (2 * c**2)))
    for n in (1, 5):
        computed = theory.gaussian_coefficient_variance(X, Y, n, M, c, features=features)
        assert_close(computed, expectation((values - lam).square()) / n, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("shared", "features", "base"),
    pairwise([True, False], ["trig", "positive"], [(n, "trig") for n in ONE_SIDED]),
)
def test_gaussian_hybrid_by_definition(base, features, shared):
    sigma, radius = 0.8, 0.65
    values = bipolar_values(sigma, radius, features)
    first, second = (ESTIMATES[name](X, Y) for name in base)
    expected = error_by_definition(values, LINE_WEIGHT, first, second, shared)
    options = {"num_lambda_features": 1, "lambda_sigma": sigma, "radius": radius}
    options |= {"lambda_features": features, "shared_projections": shared, "base": base}
    options |= {"A": OPRF_A}
    computed = theory.mse("gaussian_hybrid", X, Y, 2, **options)
    assert_close(computed, expected / 2, rtol=1e-9, atol=0)


def test_defaults_and_orthogonal_coefficients():
    given = {"lambda_sigma": 1.0, "radius": 1.0}
    assert theory.bipolar_coefficient(X, Y) == theory.bipolar_coefficient(X, Y, **given)
    assert theory.bipolar_moments(X, Y, 3) == theory.bipolar_moments(X, Y, 3, **given)
    expected = theory.mse("gaussian_hybrid", X, Y, 2, num_lambda_features=8, **given)
    assert theory.mse("gaussian_hybrid", X, Y, 2) == expected
    eye = torch.eye(2, dtype=X.dtype)
    assert theory.gaussian_coefficient(X, Y, eye) == theory.gaussian_coefficient(X, Y, eye, 1.0)
    x, y = torch.stack((X, Y)), torch.stack((Y, -X))
    rho = theory.bipolar_normaliser(0.5, 1.0)
    spread = theory.mse("trig", x / 2, y / 2, 2, kernel="gaussian", projection="orthogonal")
    lam = theory.bipolar_coefficient(x, y, 0.5, 1.0)
    computed = theory.bipolar_moments(x, y, 2, 0.5, 1.0, lambda_projection="orthogonal")
    assert_close(computed[0], lam**2 + spread / rho**2, rtol=1e-12, atol=0)


def test_weights_covariances_and_multiplications():
    # E (sum_k w_k S_k - 1)^2 by enumeration: two values of the weights, two of the bases.
    weights = torch.tensor([[0.2, 0.5, 0.3], [-0.4, 0.6, 0.8]], dtype=torch.float64)
    offsets = torch.tensor([[0.3, -0.1, 0.5], [-0.3, 0.1, -0.5]], dtype=torch.float64)
    expected = (weights @ (1 + offsets).mT - 1).square().mean()
    moments = weights.mT @ weights / 2
    covariances = offsets.mT @ offsets / 2
    assert_close(theory.hybrid_mse(moments, covariances), expected)
    assert_close(theory.hybrid_mse(moments.expand(4, 3, 3), covariances), expected.expand(4))
    # Angular, Gaussian, and two coefficients of which the last base takes the rest.
    m, n, d = 5, 3, 7
    assert theory.hybrid_multiplications(m, n, d) == 4 * m * d + n * d + 4 * m * n
    gaussian = theory.hybrid_multiplications(m, n, d, lambda_functions=(2,))
    assert gaussian == 4 * m * d + 2 * n * d + 8 * m * n
    three = theory.hybrid_multiplications(m, n, d, functions=(1, 3, 2), lambda_functions=(1, 2))
    assert three == 6 * m * d + 3 * n * d + m * n * (1 * 3 + 2 * 5)


@pytest.mark.parametrize("complex_a", [True, False])
def test_clustered_error_is_that_of_the_nearest_centres(complex_a):
    query_centers = torch.stack((X, -X))
    key_centers = torch.stack((Y, 2 * Y, -Y))
    x = torch.stack((X + 0.05, 0.05 - X)).unsqueeze(1)
    y = torch.stack((0.02 - Y, Y - 0.02, 2 * Y + 0.01))
    options = {"query_centers": query_centers, "key_centers": key_centers, "complex_a": complex_a}
    computed = theory.mse("clustered_hybrid", x, y, 7, **options)
    assert computed.shape == (2, 3)
    for i in range(2):
        for j, near in enumerate((2, 0, 1)):
            A = theory.optimal_diagonal(query_centers[i], key_centers[near], complex_a=complex_a)
            expected = theory.mse("complex_exponential", x[i, 0], y[j], 7, A=A)
            assert_close(computed[i, j], expected)


@pytest.mark.parametrize(
    ("features", "default", "complex_a"),
    pairwise(["positive", "trig"], ["hyperbolic", "positive", "trig"], [True, False]),
)
def test_gaussian_mixture_against_quadrature(complex_a, default, features):
    """Weights and bases at every node of their own shared projection, two pairs of clusters."""
    query_centers, key_centers = torch.stack((X + 0.1, -Y)), Y[None] - 0.05
    t, n, m = 1.4, 2, 3
    bases, coefficients = [], []
    for query_center in query_centers:
        A = theory.optimal_diagonal(query_center, key_centers[0], complex_a=complex_a)
        bases.append(complex_estimate(A.diag()))
        modulus = A.abs()
        u, w = modulus * X / t, -(A * A).real.sign() * Y / modulus / t
        if features == "trig":
            coefficients.append((OMEGA @ (u - w)).cos())
        else:
            coefficients.append((OMEGA @ (u + w) - u @ u - w @ w).exp())
    bases.append(ESTIMATES[default](X, Y))
    estimates = torch.stack(bases) - SM
    covariances = (WEIGHT * estimates) @ estimates.mT / m
    weights = torch.stack((*coefficients, 1 - sum(coefficients)))
    means = (WEIGHT * weights).sum(-1)
    spread = weights - means.unsqueeze(-1)
    moments = torch.outer(means, means) + (WEIGHT * spread) @ spread.mT / n
    options = {"query_centers": query_centers, "key_centers": key_centers, "complex_a": complex_a}
    options |= {"coefficients": "gaussian", "num_lambda_features": n, "lambda_scale": t}
    options |= {"lambda_features": features, "default_base": default}
    computed = theory.mse("clustered_hybrid", X.expand(2, 3, -1), Y, m, **options)
    assert_close(computed, (moments * covariances).sum().expand(2, 3), rtol=1e-9, atol=0)
