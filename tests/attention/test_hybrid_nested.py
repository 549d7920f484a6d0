"""Nested hybrids: a Gaussian coefficient that a hybrid estimates."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import theory
from attention.hybrid import HybridFeatures, NestedCoefficient
from tests.attention.cases import estimate, points, rejects

D, SIGMA, RADIUS = 4, 0.9, 1.3
F64 = {"dtype": torch.float64}


def sphere(count: int, seed: int) -> Tensor:
    return RADIUS * torch.nn.functional.normalize(points(count, D, seed), dim=-1)


def inner(seed: int, kernel: str = "gaussian", **options: object) -> attention.FeatureMap:
    return attention.feature_map(
        "angular_hybrid", D, 3, kernel=kernel, num_lambda_features=2, seed=seed, **F64, **options
    )


def nested(
    features: attention.FeatureMap, kernel: str = "softmax", seed: int = 0, **options: object
) -> HybridFeatures:
    """The outer hybrid, whose two bases share their vectors."""
    bases = [
        attention.feature_map(name, D, 5, kernel=kernel, seed=seed, **F64, **options)
        for name in ("hyperbolic", "trig")
    ]
    return HybridFeatures(bases, [NestedCoefficient(features, sigma=SIGMA, radius=RADIUS)])


def test_equals_its_definition():
    x, y, features = sphere(6, 1), sphere(6, 2), inner(7)
    fm = nested(features)
    gaussian = estimate(features, SIGMA * x, SIGMA * y)
    level = (1 - gaussian) / (1 - math.exp(-2 * SIGMA**2 * RADIUS**2))
    positive, trig = (estimate(base, x, y) for base in fm.bases)
    expected = level * positive + (1 - level) * trig
    assert_close(estimate(fm, x, y), expected, rtol=1e-11, atol=1e-12)
    assert fm.output_dim == fm.queries(x).shape[-1] == 20 * (features.output_dim + 1)
    assert_close(fm.coefficients[0].estimate(x, y), level, rtol=1e-12, atol=0)


@pytest.mark.parametrize("levels", [1, 2])
def test_no_error_at_either_end(levels):
    """Unlike the Gaussian hybrid; also where the inner hybrid is nested itself."""
    features = inner(7)
    if levels == 2:
        features = nested(features, kernel="gaussian", seed=11)
        # The inner hybrid sees vectors of length sigma r.
        features.coefficients[0].radius.fill_(SIGMA * RADIUS)
    fm, x = nested(features, seed=3), sphere(5, 1)
    for y in (x, -x):
        exact = attention.kernels.softmax(x, y)
        assert_close(estimate(fm, x, y), exact, rtol=1e-11, atol=0)
    y = sphere(5, 2)
    assert (estimate(fm, x, y) - attention.kernels.softmax(x, y)).abs().max() > 1e-3


def test_closed_form():
    # Mean and error over 4,000 draws, as heads: |z| > 4 once in 8,000 tries.
    heads, x, y = 4_000, sphere(1, 1), sphere(1, 2)
    fm = nested(inner(7, projection="iid", heads=heads), projection="iid", heads=heads)
    values = estimate(fm, x.expand(heads, 1, D), y.expand(heads, 1, D)).squeeze(-1)
    exact = attention.kernels.softmax(x, y)
    of_inner = theory.mse(
        "angular_hybrid", SIGMA * x, SIGMA * y, 3, kernel="gaussian", num_lambda_features=2
    )
    error = theory.nested_hybrid_mse(x, y, 5, of_inner, lambda_sigma=SIGMA, radius=RADIUS)
    for sample, expected in ((values, exact), ((values - exact).square(), error)):
        assert abs(float((sample.mean() - expected) / sample.std() * math.sqrt(heads))) < 4
    one, two = (values - values.mean())[::2], (values - values.mean())[1::2]
    assert abs(float((one * two).mean() / values.var())) < 0.05
    x, y = sphere(6, 1), sphere(6, 2)
    of_trig = theory.mse("trig", SIGMA * x, SIGMA * y, 4, kernel="gaussian")
    options = {"lambda_sigma": SIGMA, "radius": RADIUS, "kernel": "gaussian"}
    computed = theory.nested_hybrid_mse(x, y, 5, of_trig, **options)
    expected = theory.mse("gaussian_hybrid", x, y, 5, num_lambda_features=4, **options)
    assert_close(computed, expected, rtol=1e-12, atol=0)
    for y in (x, -x):
        of_inner = theory.mse("angular_hybrid", SIGMA * x, SIGMA * y, 3, kernel="gaussian")
        zero = theory.nested_hybrid_mse(x, y, 5, of_inner, **options)
        assert_close(zero, torch.zeros_like(zero), rtol=0, atol=1e-14)


def test_fit_and_redraw():
    fm = nested(inner(7))
    x, y = 2 * sphere(8, 1), sphere(8, 2)
    before = fm.queries(x)
    assert fm.fit(x, y) is fm
    assert float(fm.coefficients[0].radius) == pytest.approx(1.5 * RADIUS)
    fm.redraw(torch.Generator().manual_seed(5))
    assert not torch.equal(fm.queries(x), before)
    other = nested(inner(8), seed=9)
    other.load_state_dict(fm.state_dict())
    assert torch.equal(other.keys(y), fm.keys(y))
    heads = nested(inner(7, heads=2), heads=2).fit(torch.stack((x, y)), torch.stack((x, y)))
    assert heads.coefficients[0].radius.tolist() == pytest.approx([2 * RADIUS, RADIUS])


def test_any_map_of_the_gaussian_kernel_does():
    """Poisson features, whose random vectors are counts, exact where lam = x_l y_l."""
    features = attention.feature_map("poisson", D, 6, kernel="gaussian", lam=0.25, seed=3)
    coefficient = NestedCoefficient(features, radius=1.2)
    assert float(coefficient.radius) == pytest.approx(1.2)
    x = torch.full((1, D), 0.5)
    assert float(coefficient.estimate(x, x)) == pytest.approx(0, abs=1e-5)


def test_errors():
    with pytest.raises(
        ValueError, match=r"features must be a map with kernel='gaussian', .*'softmax'"
    ):
        NestedCoefficient(inner(0, kernel="softmax"))
    rejects("sigma must be a positive finite number, got 0", NestedCoefficient, inner(0), sigma=0)
    with pytest.raises(ValueError, match="radius must be a positive finite number, got -1"):
        NestedCoefficient(inner(0), radius=-1)
