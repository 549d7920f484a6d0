"""Hybrids of any number of bases, and nested ones: the composed map equals eq 8 term by term."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map, theory
from attention.hybrid import (
    AngularCoefficient,
    BipolarGaussianCoefficient,
    Coefficient,
    GaussianCoefficient,
    HybridFeatures,
    NestedCoefficient,
)
from tests.attention.cases import DOUBLE, estimate, rejects, scaled_estimate, z_score
from tests.attention.cases import points as drawn

D = 4


def points(count: int, seed: int) -> Tensor:
    return drawn(count, D, seed, 0.6)


def bases(count: int, kernel: str = "softmax") -> list[attention.FeatureMap]:
    names = ("hyperbolic", "positive", "trig", "hyperbolic")[-count:]
    return [
        feature_map(name, D, m, kernel=kernel, seed=m, **DOUBLE) for m, name in enumerate(names, 3)
    ]


def coefficients(count: int) -> list[Coefficient]:
    """Constants 1/2, 0 and above 1: their sum leaves a negative c for three."""
    return [
        AngularCoefficient(D, 3, seed=10, **DOUBLE),
        GaussianCoefficient(D, 4, c=1.5, seed=11, **DOUBLE),
        BipolarGaussianCoefficient(D, 2, sigma=0.6, radius=1.2, seed=12, **DOUBLE),
    ][:count]


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_equals_its_definition(p, kernel):
    x, y = points(7, 1), points(7, 2)
    parts, weights = bases(p + 1, kernel), coefficients(p)
    fm = HybridFeatures(parts, weights)
    lambdas = [weight.estimate(x, y) for weight in weights]
    expected = sum(w * estimate(part, x, y) for w, part in zip(lambdas, parts, strict=False))
    expected = expected + (1 - sum(lambdas)) * estimate(parts[-1], x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)
    assert_close(scaled_estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)
    assert fm.queries(x).shape[-1] == fm.keys(y).shape[-1] == fm.output_dim
    assert fm.signed


def test_dimension_and_columns_left_out():
    """a = 0 of the Gaussian coefficient drops its own column, c = 0 of two halves the last's."""
    three = bases(3)
    widths = [part.output_dim for part in three]
    angular = [AngularCoefficient(D, n, seed=n, **DOUBLE) for n in (3, 5)]
    fm = HybridFeatures(three, angular)
    assert fm.output_dim == widths[0] * 4 + widths[1] * 6 + widths[2] * 8
    gaussian = HybridFeatures(three[:2], [GaussianCoefficient(D, 4, **DOUBLE)])
    assert gaussian.output_dim == widths[0] * 4 + widths[1] * 5
    x, y = points(5, 1), points(5, 2)
    lambdas = [coefficient.estimate(x, y) for coefficient in angular]
    expected = sum(w * estimate(s, x, y) for w, s in zip(lambdas, three[:2], strict=True))
    expected = expected + (1 - lambdas[0] - lambdas[1]) * estimate(three[2], x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)


def test_unbiased():
    """Three bases, 20,000 draws at once, as heads; |z| > 4 once in 16,000 tries."""
    x, y = (points(1, seed).expand(20_000, 1, D) for seed in (1, 2))
    options = {"heads": 20_000, "projection": "iid", **DOUBLE}
    names = ("hyperbolic", "positive", "trig")
    parts = [feature_map(name, D, 2, seed=seed, **options) for seed, name in enumerate(names)]
    bipolar = BipolarGaussianCoefficient(D, 2, sigma=0.6, radius=1.2, seed=12, **options)
    fm = HybridFeatures(parts, [AngularCoefficient(D, 2, seed=10, **options), bipolar])
    assert z_score(estimate(fm, x, y), attention.kernels.softmax(x[0], y[0])).abs() < 4


def test_heads_and_fit():
    """Each head is a separate map; `fit` reaches bases and coefficients."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(3, 6, D, generator=generator, dtype=torch.float64) for _ in range(2))
    x = x * torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)[:, None, None]
    parts = [
        feature_map(b, D, 2, heads=3, seed=s, **DOUBLE) for s, b in enumerate(("oprf", "trig"))
    ]
    weight = BipolarGaussianCoefficient(D, 2, heads=3, **DOUBLE)
    fm = HybridFeatures(parts, [weight]).fit(x, y)
    assert len(set(weight.radius.tolist())) == 3
    assert bool((parts[0].A < 0).all())
    assert fm.queries(x).shape == (3, 6, fm.output_dim)
    level = weight.constant + (weight.queries(x) * weight.keys(y)).sum(-1, keepdim=True)
    level = level.squeeze(-1)
    assert_close(weight.estimate(x, y), level, rtol=1e-14, atol=0)
    expected = level * estimate(parts[0], x, y) + (1 - level) * estimate(parts[1], x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)


def test_redraw_and_gradients():
    """`redraw` reaches every part in order."""
    x, y = points(5, 1), points(5, 2)
    fm = HybridFeatures(bases(4), coefficients(3))
    first = estimate(fm, x, y)
    fm.redraw(torch.Generator().manual_seed(7))
    assert not torch.isclose(estimate(fm, x, y), first, rtol=1e-3).any()
    parts, generator = (bases(4), coefficients(3)), torch.Generator().manual_seed(7)
    for part in (*parts[0], *parts[1]):
        part.redraw(generator)
    assert torch.equal(estimate(fm, x, y), estimate(HybridFeatures(*parts), x, y))
    fm = HybridFeatures(bases(3), coefficients(2))
    inputs = tuple(points(4, seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(lambda a, b: fm.attend(a, b, b), inputs)


def test_errors():
    for parts, count, message in (
        (bases(2), 2, r"one fewer than the bases, .* got 2 for 2 bases"),
        (bases(1), 0, r"one fewer than the bases, .* got 0 for 1 bases"),
        ([*bases(1), *bases(1, "gaussian")], 1, r"must agree in \(dim, kernel, heads\), got"),
    ):
        rejects(message, HybridFeatures, parts, coefficients(count))
    fixed = AngularCoefficient(D, 2, projection=torch.ones(2, D))
    rejects("redraw needs projections given by name", fixed.redraw, torch.Generator())
    message = r"features must be a map with kernel='gaussian', .*'softmax'"
    rejects(message, NestedCoefficient, inner(0, kernel="softmax"))
    for option, value in (("sigma", 0), ("radius", -1)):
        message = f"{option} must be a positive finite number, got {value}"
        rejects(message, NestedCoefficient, inner(0), **{option: value})


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    "kind", [AngularCoefficient, GaussianCoefficient, BipolarGaussianCoefficient]
)
def test_coefficients_are_independent_of_bases_with_their_seed(kind, seed):
    """Equal vectors would bias the estimate by a quarter of its value."""
    base = feature_map("positive", D, 4, projection="iid", seed=seed)
    coefficient = kind(D, 4, projection="iid", seed=seed)  # type: ignore[call-arg]
    (tau,) = (t for name, t in coefficient.named_buffers() if name in ("tau", "features.omega"))
    assert torch.cdist(base.omega, tau).min() > 1e-3


SIGMA, RADIUS = 0.9, 1.3


def sphere(count: int, seed: int) -> Tensor:
    return RADIUS * torch.nn.functional.normalize(drawn(count, D, seed), dim=-1)


def inner(seed: int, kernel: str = "gaussian", **options: object) -> attention.FeatureMap:
    return feature_map(
        "angular_hybrid", D, 3, kernel=kernel, num_lambda_features=2, seed=seed, **DOUBLE, **options
    )


def nested(
    features: attention.FeatureMap, kernel: str = "softmax", seed: int = 0, **options: object
) -> HybridFeatures:
    """The outer hybrid, whose two bases share their vectors."""
    bases = [
        feature_map(name, D, 5, kernel=kernel, seed=seed, **DOUBLE, **options)
        for name in ("hyperbolic", "trig")
    ]
    return HybridFeatures(bases, [NestedCoefficient(features, sigma=SIGMA, radius=RADIUS)])


def test_nested_hybrids_equal_their_definition():
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
        assert_close(estimate(fm, x, y), attention.kernels.softmax(x, y), rtol=1e-11, atol=0)
    y = sphere(5, 2)
    assert (estimate(fm, x, y) - attention.kernels.softmax(x, y)).abs().max() > 1e-3


def test_closed_form():
    # Mean and error over 4,000 draws, as heads: |z| > 4 once in 8,000 tries.
    heads, x, y = 4_000, sphere(1, 1), sphere(1, 2)
    fm = nested(inner(7, projection="iid", heads=heads), projection="iid", heads=heads)
    values = estimate(fm, x.expand(heads, 1, D), y.expand(heads, 1, D)).squeeze(-1)
    exact = attention.kernels.softmax(x, y)
    options = {"kernel": "gaussian", "num_lambda_features": 2}
    of_inner = theory.mse("angular_hybrid", SIGMA * x, SIGMA * y, 3, **options)
    error = theory.nested_hybrid_mse(x, y, 5, of_inner, lambda_sigma=SIGMA, radius=RADIUS)
    assert z_score(values, exact).abs() < 4
    assert z_score((values - exact).square(), error).abs() < 4
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


def test_nested_fit_redraw_and_kernels():
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
    # Poisson features, whose random vectors are counts, exact where lam = x_l y_l.
    features = feature_map("poisson", D, 6, kernel="gaussian", lam=0.25, seed=3)
    coefficient = NestedCoefficient(features, radius=1.2)
    assert float(coefficient.radius) == pytest.approx(1.2)
    x = torch.full((1, D), 0.5)
    assert float(coefficient.estimate(x, x)) == pytest.approx(0, abs=1e-5)
