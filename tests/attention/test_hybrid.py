"""The angular and the Gaussian hybrid: where they are exact, and what they equal."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

import attention
from attention import feature_map
from attention.hybrid import AngularHybrid, GaussianCoefficient
from tests.attention.cases import doubles, estimate, points, rejects, scaled_estimate
from tests.pairwise import pairwise

OPTIONS = [
    {},
    {"shared_projections": False},
    {"num_lambda_features": 1},
    {"num_lambda_features": 5},
    {"lambda_projection": "iid"},
    {"base": ("positive", "trig")},
    {"base": ("oprf", "trig")},
    {"base": ("oprf", "trig"), "shared_projections": False, "projection": ("simplex", "iid")},
]


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("options", OPTIONS)
def test_no_error_at_angles_zero_and_pi(options, kernel):
    """Swapped weights would leave an error of order 10 at angle 0.

    At angle pi the trig terms, of size exp(|x|^2), cancel to rounding: lengths stay moderate.
    """
    x = 1.5 * normalize(points(20, 8), dim=-1)
    fm = feature_map("angular_hybrid", 8, 4, kernel=kernel, dtype=torch.float64, **options)
    for y in (x, -x):
        exact = getattr(attention.kernels, kernel)(x, y)
        assert_close(estimate(fm, x, y), exact, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(
    ("A", "shared", "first_base"),
    pairwise([None, -0.3], [True, False], ["hyperbolic", "positive", "oprf"]),
)
def test_equals_its_definition(first_base, shared, A):
    """L S1 + (1 - L) S2 from the two base maps and explicit signs (eq 8), also after `fit`."""
    x, y, omega, tau = (points(n, 3, n) for n in (6, 6, 8, 5))
    first, second = (omega[:4], omega[:4]) if shared else (omega[:4], omega[4:])
    options = {"projection": first if shared else omega, "shared_projections": shared}
    options |= {"num_lambda_features": 5, "lambda_projection": tau, "base": (first_base, "trig")}
    fm = feature_map("angular_hybrid", 3, 4, **options)
    widths = {"hyperbolic": 2, "positive": 1, "oprf": 1}
    assert fm.output_dim == (widths[first_base] + 2) * 4 * (5 + 1)
    one_sided = attention.features.HyperbolicFeatures(3, 4, projection=first)
    if first_base == "positive":
        one_sided = attention.features.PositiveFeatures(3, 4, projection=first)
    if first_base == "oprf":
        one_sided = attention.features.oprf.OprfFeatures(3, 4, projection=first)
        if A is not None:
            fm.fit(x, y)
            one_sided.fit(x, y)
            assert float(one_sided.A) < 0
    weight = 0.5 - 0.5 * ((x @ tau.T).sign() * (y @ tau.T).sign()).mean(-1)
    trig = feature_map("trig", 3, 4, projection=second)
    expected = weight * estimate(one_sided, x, y) + (1 - weight) * estimate(trig, x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)
    assert_close(scaled_estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)
    scores = (fm.queries(x) @ fm.keys(y).mT).sum(0)
    assert_close(fm.token_scores(x, y), scores, rtol=1e-12, atol=1e-13)


def test_couplings_and_gradients():
    # The first base's omegas form a simplex, the second's are orthogonal.
    options = {"projection": ("simplex", "orthogonal"), "shared_projections": False}
    options |= {"base": ("positive", "trig"), "dtype": torch.float64}
    fm = AngularHybrid(6, 6, **options)
    for start, cosine in ((0, -1 / 5), (6, 0.0)):
        rows = normalize(fm.weight[start : start + 6], dim=-1)
        off_diagonal = (rows @ rows.T)[~torch.eye(6, dtype=torch.bool)]
        assert_close(off_diagonal, torch.full_like(off_diagonal, cosine), rtol=0, atol=1e-12)
    before = fm.weight.clone()
    fm.redraw(torch.Generator().manual_seed(5))
    assert not torch.equal(before, fm.weight)
    rows = normalize(fm.weight[:6], dim=-1)
    assert float((rows @ rows.T)[0, 1]) == pytest.approx(-1 / 5)
    # Of features and of attention, against finite differences; signs count as constants.
    x, y = (0.5 * points(4, 3, seed) for seed in (1, 2))
    for options in ({}, {"base": ("oprf", "trig")}):
        fm = feature_map("angular_hybrid", 3, 4, dtype=torch.float64, **options)
        inputs = (x.clone().requires_grad_(), y.clone().requires_grad_())
        assert torch.autograd.gradcheck(lambda a, b, fm=fm: estimate(fm, a, b), inputs)
        assert torch.autograd.gradcheck(lambda a, b, fm=fm: fm.attend(a, b, b), inputs)


@pytest.mark.parametrize("name", ["angular_hybrid", "gaussian_hybrid"])
@pytest.mark.parametrize("lambda_projection", [None, "iid"])
def test_state_is_the_random_vectors(name, lambda_projection):
    """Saved policies hold `weight` alone for the angular hybrid."""
    options = {"lambda_projection": lambda_projection}
    fm, other, third = (feature_map(name, 3, 4, seed=seed, **options) for seed in range(3))
    radius = set() if name == "angular_hybrid" else {"coefficient.radius"}
    assert set(fm.state_dict()) == {"weight"} | radius
    x = points(5, 3).float()
    fm.fit(x, 2 * x)
    other.load_state_dict(fm.state_dict())
    copy.deepcopy(fm).load_state_dict(third.state_dict())
    assert_close(other.keys(x), fm.keys(x), rtol=0, atol=0)


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
    fm = feature_map("gaussian_hybrid", 6, 4, **options)
    exact = attention.kernels.softmax(x, sign * x)
    assert_close(estimate(fm, x, sign * x), exact, rtol=1e-11, atol=0)
    other = attention.kernels.softmax(x, -sign * x)
    assert float((estimate(fm, x, -sign * x) - other).abs().max()) > 1e-3


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lambda_features", ["trig", "positive"])
def test_gaussian_hybrid_equals_its_definition(lambda_features, shared):
    """L S1 + (1 - L) S2 with L computed from its formula; both constants differ from 0 and 1."""
    x, y, omega, tau = (sphere(n, 3, n) for n in (6, 6, 8, 5))
    x = 0.7 * x
    first, second = (omega[:4], omega[:4]) if shared else (omega[:4], omega[4:])
    options = {"projection": first if shared else omega, "shared_projections": shared}
    options |= {"num_lambda_features": 5, "lambda_projection": tau, "lambda_sigma": SIGMA}
    options |= {"radius": RADIUS, "lambda_features": lambda_features}
    fm = feature_map("gaussian_hybrid", 3, 4, **options)
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
    hyperbolic = feature_map("hyperbolic", 3, 4, projection=first)
    trig = feature_map("trig", 3, 4, projection=second)
    expected = weight * estimate(hyperbolic, x, y) + (1 - weight) * estimate(trig, x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)
    scores = (fm.queries(x) @ fm.keys(y).mT).sum(0)
    assert_close(fm.token_scores(x, y), scores, rtol=1e-12, atol=1e-13)


def test_radius_and_dtypes_of_coefficients():
    x, y = sphere(10, 4, 1), 2 * sphere(30, 4, 2)
    fm = feature_map("gaussian_hybrid", 4, 3, dtype=torch.float64).fit(x, y)
    radius = float(fm.coefficient.radius)
    assert radius == pytest.approx(1.5 * RADIUS)
    given = feature_map("gaussian_hybrid", 4, 3, radius=radius, dtype=torch.float64)
    assert_close(fm.keys(y), given.keys(y))
    rejects("fit needs queries and keys of mean length above 0", fm.fit, 0 * x, 0 * y)
    # With n = 5 the weights are 1/10, which float32 rounds.
    fm = AngularHybrid(3, 4, num_lambda_features=5).double()
    x = points(4, 3)
    assert_close(estimate(fm, x, x), attention.kernels.softmax(x, x), rtol=1e-13, atol=0)
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


@pytest.mark.parametrize("features", ["trig", "positive"])
def test_general_coefficient(features):
    """Mean exp(-|x + M y|^2 / (2 c^2)) over 100,000 taus, for an M that is not symmetric."""
    matrix = doubles(3, 3, seed=3)
    x, y = 0.5 * sphere(1, 3, 1), 0.5 * sphere(1, 3, 2)
    n = 100_000
    options = {"lambda_features": features, "projection": "iid", "dtype": torch.float64}
    coefficient = GaussianCoefficient(3, n, M=matrix, c=1.4, **options)
    assert coefficient.constant == 0
    u, w = x / 1.4, -(y @ matrix.T) / 1.4
    exact = float(attention.kernels.gaussian(u, w))
    if features == "trig":
        variance = (1 - exact**2) ** 2 / 2
    else:
        variance = math.exp(4 * float((u * w).sum())) - exact**2
    assert abs(float(coefficient.estimate(x, y)) - exact) < 4 * math.sqrt(variance / n)
