"""The Gaussian hybrid and its coefficient."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

import attention
from attention.hybrid import GaussianCoefficient
from tests.attention.cases import doubles, estimate, rejects

SIGMA, RADIUS = 0.8, 1.3


def sphere(count: int, dim: int, seed: int) -> Tensor:
    return RADIUS * normalize(doubles(count, dim, seed=seed), dim=-1)


@pytest.mark.parametrize("base", [("hyperbolic", "trig"), ("oprf", "trig")])
@pytest.mark.parametrize(("lambda_features", "sign"), [("trig", 1), ("positive", -1)])
def test_no_error_at_one_end(lambda_features, sign, base):
    """Trig coefficients are exact at angle 0, positive ones at pi; the other end has an error."""
    x = sphere(20, 6, 0)
    options = {"base": base, "lambda_sigma": SIGMA, "radius": RADIUS}
    options |= {"lambda_features": lambda_features, "dtype": torch.float64}
    fm = attention.feature_map("gaussian_hybrid", 6, 4, **options)
    exact = attention.kernels.softmax(x, sign * x)
    assert_close(estimate(fm, x, sign * x), exact, rtol=1e-11, atol=0)
    other = attention.kernels.softmax(x, -sign * x)
    assert float((estimate(fm, x, -sign * x) - other).abs().max()) > 1e-3


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lambda_features", ["trig", "positive"])
def test_equals_its_definition(lambda_features, shared):
    """L S1 + (1 - L) S2 with L computed from its formula; both constants differ from 0 and 1."""
    x, y, omega, tau = (sphere(n, 3, n) for n in (6, 6, 8, 5))
    x = 0.7 * x
    first, second = (omega[:4], omega[:4]) if shared else (omega[:4], omega[4:])
    options = {"projection": first if shared else omega, "shared_projections": shared}
    options |= {"num_lambda_features": 5, "lambda_projection": tau, "lambda_sigma": SIGMA}
    options |= {"radius": RADIUS, "lambda_features": lambda_features}
    fm = attention.feature_map("gaussian_hybrid", 3, 4, **options)
    rho = 1 - math.exp(-2 * SIGMA**2 * RADIUS**2)
    p_x, p_y = SIGMA * x @ tau.T, SIGMA * y @ tau.T
    if lambda_features == "trig":
        gaussian = (p_x - p_y).cos().mean(-1)
        assert fm.output_dim == 4 * 4 * (2 * 5 + 1)
    else:
        squares = SIGMA**2 * (x.square() + y.square()).sum(-1, keepdim=True)
        gaussian = (p_x + p_y - squares).exp().mean(-1)
        assert fm.output_dim == 4 * 4 * (5 + 1)
    weight = (1 - gaussian) / rho
    hyperbolic = attention.feature_map("hyperbolic", 3, 4, projection=first)
    trig = attention.feature_map("trig", 3, 4, projection=second)
    expected = weight * estimate(hyperbolic, x, y) + (1 - weight) * estimate(trig, x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)
    scores = (fm.queries(x) @ fm.keys(y).mT).sum(0)
    assert_close(fm.token_scores(x, y), scores, rtol=1e-12, atol=1e-13)


def test_fit_sets_the_radius():
    x, y = sphere(10, 4, 1), 2 * sphere(30, 4, 2)
    fm = attention.feature_map("gaussian_hybrid", 4, 3, dtype=torch.float64).fit(x, y)
    radius = float(fm.coefficient.radius)
    assert radius == pytest.approx(1.5 * RADIUS)
    given = attention.feature_map("gaussian_hybrid", 4, 3, radius=radius, dtype=torch.float64)
    assert_close(fm.keys(y), given.keys(y))
    rejects("fit needs queries and keys of mean length above 0", fm.fit, 0 * x, 0 * y)


@pytest.mark.parametrize("features", ["trig", "positive"])
def test_general_coefficient(features):
    """Mean exp(-|x + M y|^2 / (2 c^2)) over 100,000 taus, for an M that is not symmetric."""
    matrix = doubles(3, 3, seed=3)
    x, y = 0.5 * sphere(1, 3, 1), 0.5 * sphere(1, 3, 2)
    n = 100_000
    coefficient = GaussianCoefficient(
        3, n, M=matrix, c=1.4, lambda_features=features, projection="iid", dtype=torch.float64
    )
    assert coefficient.constant == 0
    u, w = x / 1.4, -(y @ matrix.T) / 1.4
    exact = float(attention.kernels.gaussian(u, w))
    if features == "trig":
        variance = (1 - exact**2) ** 2 / 2
    else:
        variance = math.exp(4 * float((u * w).sum())) - exact**2
    assert abs(float(coefficient.estimate(x, y)) - exact) < 4 * math.sqrt(variance / n)


def test_general_coefficient_works_in_float32_for_bfloat16():
    M = torch.tensor([[0.3, -1.7], [1.1, 0.6]])
    x, y = torch.tensor([[0.7, -0.4]]), torch.tensor([[0.3, 0.9]])
    low = GaussianCoefficient(2, 3, M=M, c=0.9, dtype=torch.bfloat16)
    full = GaussianCoefficient(2, 3, M=low.M, c=0.9, projection=low.features.omega)
    for name in ("queries", "keys"):
        computed = getattr(low, name)(x.bfloat16())
        expected = getattr(full.float(), name)(x.bfloat16().float())
        assert computed.dtype == torch.float32
        assert_close(computed, expected)
    assert not torch.equal(low.keys(y.bfloat16()), low.queries(y.bfloat16()))
