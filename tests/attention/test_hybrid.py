"""The angular hybrid: where it is exact, what it equals, what it rejects."""

import copy

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

import attention
from attention.hybrid import AngularHybrid
from tests.attention.cases import estimate, points, scaled_estimate
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
    fm = attention.feature_map(
        "angular_hybrid", 8, 4, kernel=kernel, dtype=torch.float64, **options
    )
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
    fm = attention.feature_map("angular_hybrid", 3, 4, **options)
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
    trig = attention.feature_map("trig", 3, 4, projection=second)
    expected = weight * estimate(one_sided, x, y) + (1 - weight) * estimate(trig, x, y)
    assert_close(estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)
    assert_close(scaled_estimate(fm, x, y), expected, rtol=1e-12, atol=1e-14)
    scores = (fm.queries(x) @ fm.keys(y).mT).sum(0)
    assert_close(fm.token_scores(x, y), scores, rtol=1e-12, atol=1e-13)


def test_pair_of_couplings():
    """The first base's omegas form a simplex, the second's are orthogonal."""
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


@pytest.mark.parametrize("name", ["angular_hybrid", "gaussian_hybrid"])
@pytest.mark.parametrize("lambda_projection", [None, "iid"])
def test_state_is_the_random_vectors(name, lambda_projection):
    """Saved policies hold `weight` alone for the angular hybrid."""
    options = {"lambda_projection": lambda_projection}
    fm, other = (attention.feature_map(name, 3, 4, seed=seed, **options) for seed in (0, 1))
    radius = set() if name == "angular_hybrid" else {"coefficient.radius"}
    assert set(fm.state_dict()) == {"weight"} | radius
    x = points(5, 3).float()
    fm.fit(x, 2 * x)
    other.load_state_dict(fm.state_dict())
    assert_close(other.keys(x), fm.keys(x), rtol=0, atol=0)
    copied = copy.deepcopy(fm)
    copied.load_state_dict(attention.feature_map(name, 3, 4, seed=2, **options).state_dict())
    assert_close(other.keys(x), fm.keys(x), rtol=0, atol=0)


def test_cast_keeps_the_coefficients_exact():
    """With n = 5 the weights are 1/10, which float32 rounds."""
    fm = AngularHybrid(3, 4, num_lambda_features=5).double()
    x = points(4, 3)
    assert_close(estimate(fm, x, x), attention.kernels.softmax(x, x), rtol=1e-13, atol=0)


def test_gradients():
    """Of features and of attention, against finite differences; signs count as constants."""
    x, y = (0.5 * points(4, 3, seed) for seed in (1, 2))
    for options in ({}, {"base": ("oprf", "trig")}):
        fm = attention.feature_map("angular_hybrid", 3, 4, dtype=torch.float64, **options)
        inputs = (x.clone().requires_grad_(), y.clone().requires_grad_())
        assert torch.autograd.gradcheck(lambda a, b, fm=fm: estimate(fm, a, b), inputs)
        assert torch.autograd.gradcheck(lambda a, b, fm=fm: fm.attend(a, b, b), inputs)
