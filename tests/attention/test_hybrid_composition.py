"""Hybrids of any number of bases: the composed map equals eq 8 term by term."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention.hybrid import (
    AngularCoefficient,
    BipolarGaussianCoefficient,
    Coefficient,
    GaussianCoefficient,
    HybridFeatures,
)
from tests.attention.cases import estimate, rejects, scaled_estimate
from tests.attention.cases import points as drawn

D = 4
F64 = {"dtype": torch.float64}


def points(count: int, seed: int) -> Tensor:
    return drawn(count, D, seed, 0.6)


def bases(count: int, kernel: str = "softmax") -> list[attention.FeatureMap]:
    names = ("hyperbolic", "positive", "trig", "hyperbolic")[-count:]
    return [
        attention.feature_map(name, D, m, kernel=kernel, seed=m, **F64)
        for m, name in enumerate(names, 3)
    ]


def coefficients(count: int) -> list[Coefficient]:
    """Constants 1/2, 0 and above 1: their sum leaves a negative c for three."""
    return [
        AngularCoefficient(D, 3, seed=10, **F64),
        GaussianCoefficient(D, 4, c=1.5, seed=11, **F64),
        BipolarGaussianCoefficient(D, 2, sigma=0.6, radius=1.2, seed=12, **F64),
    ][:count]


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_equals_its_definition(p, kernel):
    x, y = points(7, 1), points(7, 2)
    parts, weights = bases(p + 1, kernel), coefficients(p)
    fm = HybridFeatures(parts, weights)
    lambdas = [weight.estimate(x, y) for weight in weights]
    expected = sum(
        weight * estimate(part, x, y) for weight, part in zip(lambdas, parts[:-1], strict=True)
    )
    expected = expected + (1 - sum(lambdas)) * estimate(parts[-1], x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)
    assert_close(scaled_estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)
    assert fm.queries(x).shape[-1] == fm.keys(y).shape[-1] == fm.output_dim
    assert fm.signed


def test_dimension_and_columns_left_out():
    """a = 0 of the Gaussian coefficient drops its own column, c = 0 of two halves the last's."""
    three = bases(3)
    widths = [part.output_dim for part in three]
    angular = [AngularCoefficient(D, n, seed=n, **F64) for n in (3, 5)]
    fm = HybridFeatures(three, angular)
    assert fm.output_dim == widths[0] * 4 + widths[1] * 6 + widths[2] * 8
    gaussian = HybridFeatures(three[:2], [GaussianCoefficient(D, 4, **F64)])
    assert gaussian.output_dim == widths[0] * 4 + widths[1] * 5
    x, y = points(5, 1), points(5, 2)
    lambdas = [coefficient.estimate(x, y) for coefficient in angular]
    expected = sum(w * estimate(s, x, y) for w, s in zip(lambdas, three[:2], strict=True))
    expected = expected + (1 - lambdas[0] - lambdas[1]) * estimate(three[2], x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)


def test_unbiased():
    """Three bases, 20,000 draws at once, as heads; |z| > 4 once in 16,000 tries."""
    heads = 20_000
    x, y = points(1, 1).expand(heads, 1, D), points(1, 2).expand(heads, 1, D)
    options = {"heads": heads, "projection": "iid", **F64}
    parts = [
        attention.feature_map(name, D, 2, seed=seed, **options)
        for seed, name in enumerate(("hyperbolic", "positive", "trig"))
    ]
    weights = [
        AngularCoefficient(D, 2, seed=10, **options),
        BipolarGaussianCoefficient(D, 2, sigma=0.6, radius=1.2, seed=12, **options),
    ]
    values = estimate(HybridFeatures(parts, weights), x, y).squeeze(-1)
    exact = attention.kernels.softmax(x[0], y[0])
    assert abs(float((values.mean() - exact) / (values.std() / heads**0.5))) < 4


def test_heads_and_fit():
    """Each head is a map of its own; `fit` reaches bases and coefficients."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(3, 6, D, generator=generator, dtype=torch.float64) for _ in range(2))
    x = x * torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)[:, None, None]
    parts = [
        attention.feature_map(b, D, 2, heads=3, seed=s, **F64)
        for s, b in enumerate(("oprf", "trig"))
    ]
    weight = BipolarGaussianCoefficient(D, 2, heads=3, **F64)
    fm = HybridFeatures(parts, [weight]).fit(x, y)
    assert len(set(weight.radius.tolist())) == 3
    assert bool((parts[0].A < 0).all())
    assert fm.queries(x).shape == (3, 6, fm.output_dim)
    level = weight.constant + (weight.queries(x) * weight.keys(y)).sum(-1, keepdim=True)
    level = level.squeeze(-1)
    assert_close(weight.estimate(x, y), level, rtol=1e-14, atol=0)
    expected = level * estimate(parts[0], x, y) + (1 - level) * estimate(parts[1], x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-13)


def test_redraw_reaches_every_part_in_order():
    x, y = points(5, 1), points(5, 2)
    fm = HybridFeatures(bases(4), coefficients(3))
    first = estimate(fm, x, y)
    fm.redraw(torch.Generator().manual_seed(7))
    assert not torch.isclose(estimate(fm, x, y), first, rtol=1e-3).any()
    parts, generator = (bases(4), coefficients(3)), torch.Generator().manual_seed(7)
    for part in (*parts[0], *parts[1]):
        part.redraw(generator)
    assert torch.equal(estimate(fm, x, y), estimate(HybridFeatures(*parts), x, y))


def test_gradients_and_compilation():
    fm = HybridFeatures(bases(3), coefficients(2))
    inputs = tuple(points(4, seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(lambda a, b: fm.attend(a, b, b), inputs)
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: fm.queries(a), fullgraph=True, backend="eager")
    assert_close(compiled(points(4, 1)), fm.queries(points(4, 1)))


def test_errors():
    with pytest.raises(ValueError, match=r"one fewer than the bases, .* got 2 for 2 bases"):
        HybridFeatures(bases(2), coefficients(2))
    rejects(r"one fewer than the bases, .* got 0 for 1 bases", HybridFeatures, bases(1), [])
    with pytest.raises(ValueError, match=r"bases must agree in \(dim, kernel, heads\), got"):
        HybridFeatures([*bases(1), *bases(1, "gaussian")], coefficients(1))
    fixed = AngularCoefficient(D, 2, projection=torch.ones(2, D))
    rejects("redraw needs projections given by name", fixed.redraw, torch.Generator())


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    "kind", [AngularCoefficient, GaussianCoefficient, BipolarGaussianCoefficient]
)
def test_coefficients_are_independent_of_bases_with_their_seed(kind, seed):
    """Equal vectors would bias the estimate by a quarter of its value."""
    base = attention.feature_map("positive", D, 4, projection="iid", seed=seed)
    coefficient = kind(D, 4, projection="iid", seed=seed)  # type: ignore[call-arg]
    (tau,) = (t for name, t in coefficient.named_buffers() if name in ("tau", "features.omega"))
    assert torch.cdist(base.omega, tau).min() > 1e-3
