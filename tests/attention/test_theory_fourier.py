"""Squared L2 error of Fourier features, and what their errors do to learners."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import kernels, theory
from tests.attention.cases import LINE, LINE_WEIGHT, OMEGA, WEIGHT, points, z_score

NAMES = ("trig", "trig_phase")


def drawn(name: str, rows: int, x: Tensor, y: Tensor, draws: int, seed: int) -> Tensor:
    """Estimates of exp(-|x-y|^2/2) of all pairs: (n, d), (k, d) -> (draws, n, k)."""
    m = rows // 2 if name == "trig" else rows
    options = {"kernel": "gaussian", "projection": "iid", "heads": draws, "seed": seed}
    options |= {"dtype": torch.float64}
    fm = attention.feature_map(name, x.shape[-1], m, **options)
    of_x, of_y = (u.expand(draws, *u.shape) for u in (x, y))
    return fm.queries(of_x) @ fm.keys(of_y).mT


@pytest.mark.parametrize("name", NAMES)
def test_expected_l2_error_of_points(name):
    """Mean over 2,000 draws of the mean of f^2 over 6 x 4 pairs; |z| > 4 once in 16,000 tries."""
    x, y = points(6, 3, 1, 0.7), points(4, 3, 2, 0.7)
    exact = kernels.gaussian(x.unsqueeze(1), y)
    errors = (drawn(name, 10, x, y, 2000, 3) - exact).square().mean((-2, -1))
    expected = theory.expected_l2_error(name, x, y, 10)
    assert z_score(errors, expected).abs() < 4
    scaled = theory.expected_l2_error(name, 1.7 * x, 1.7 * y, 10, sigma=1.7)
    assert_close(scaled, expected, rtol=1e-12, atol=0)
    for epsilon in (0.3, 1.0, 2.0, 5.0):
        bound = theory.l2_concentration_bound(name, 10, epsilon)
        assert ((errors - expected).abs() >= epsilon).double().mean() <= bound


@pytest.mark.parametrize("sigma", [1.0, 0.6])
@pytest.mark.parametrize("name", NAMES)
def test_expected_l2_error_of_gaussians(name, sigma):
    """x - y is N(0, 2 spread^2 I): by quadrature over it in one dimension and in two."""
    spread, zero = 0.4, torch.zeros(1, dtype=torch.float64)
    for nodes, weight in ((LINE.unsqueeze(-1), LINE_WEIGHT), (OMEGA, WEIGHT)):
        delta = math.sqrt(2) * spread * nodes
        m = 7 if name == "trig" else 14
        origin = zero.expand_as(delta)
        errors = theory.mse(name, delta, origin, m, kernel="gaussian", sigma=sigma)
        computed = theory.expected_gaussian_l2_error(name, nodes.shape[-1], 14, spread, sigma)
        assert computed == pytest.approx((weight * errors).sum().item(), rel=1e-10)
    narrow = theory.expected_gaussian_l2_error(name, 3, 14, 1e-5, sigma)
    assert 0 <= narrow <= (1e-15 if name == "trig" else 0.04)


@pytest.mark.parametrize(("name", "change"), [("trig", 16), ("trig_phase", 24)])
def test_concentration_follows_from_bounded_differences(name, change):
    """McDiarmid: 2 exp(-2 eps^2 / sum c^2); one frequency never changes f^2 by more than c."""
    rows, count = 30, 15 if name == "trig" else 30
    expected = 2 * math.exp(-2 * 1.3**2 / (count * (change / rows) ** 2))
    assert theory.l2_concentration_bound(name, rows, 1.3) == pytest.approx(expected, rel=1e-12)
    # Means of `count` terms in [-c, c] that differ in one, less kernels in [0, 1].
    top = 1.0 if name == "trig" else 2.0
    mean, kernel = torch.linspace(-top, top, 41).unsqueeze(-1), torch.linspace(0, 1, 11)
    other = (mean + 2 * top / count).clamp(max=top)
    largest = ((other - kernel).square() - (mean - kernel).square()).abs().max()
    assert 0.8 * change / rows < largest <= change / rows


def gram(name: str, x: Tensor, rows: int, seed: int) -> Tensor:
    return drawn(name, rows, x, x, 1, seed)[0]


@pytest.mark.parametrize("name", NAMES)
def test_ridge_predictions_change_by_less(name):
    """20 points and one to be predicted, of five draws; the last point is not trained on."""
    x, targets, penalty = points(21, 2, 5), points(20, 1, 6).squeeze(-1), 0.3
    exact = kernels.gaussian(x.unsqueeze(1), x)
    rms = targets.square().mean().sqrt().item()

    def prediction(K: Tensor) -> Tensor:
        system = K[:20, :20] + 20 * penalty * torch.eye(20, dtype=torch.float64)
        return K[20, :20] @ torch.linalg.solve(system, targets)

    for seed in range(5):
        estimate = gram(name, x, 60, seed)
        epsilon = (estimate - exact).abs().max().item()
        bound = theory.ridge_prediction_bound(epsilon, rms, penalty)
        assert (prediction(estimate) - prediction(exact)).abs() <= bound


def test_the_bounds_of_learners():
    # One point, many penalties: h = k t / (1 + penalty), changed by epsilon t / (1 + penalty).
    bound = theory.ridge_prediction_bound(0.01, 2.0, 1e4)
    assert bound == pytest.approx(0.01 * 2 / (1 + 1e4), rel=1e-3)
    assert theory.ridge_prediction_bound(0.01, 2.0, 0.5) == pytest.approx(1.5 / 0.25 * 0.02)
    # sqrt 2 c e^(1/4) (1 + (e/4)^(1/4)) for features of length 1.
    e = 0.37
    expected = math.sqrt(2) * 1.5 * e**0.25 * (1 + (e / 4) ** 0.25)
    assert theory.svm_prediction_bound("trig", e, 1.5) == pytest.approx(expected, rel=1e-12)
    assert theory.svm_prediction_bound("trig_phase", e, 1.5) > expected


@pytest.mark.parametrize("name", NAMES)
def test_svm_outputs_change_by_less(name):
    """15 points and one more; features are columns of the kernel matrices' square roots."""
    svm = pytest.importorskip("sklearn.svm")
    x, c = points(16, 2, 7), 2.0
    labels = (points(16, 1, 8).squeeze(-1) > 0)[:15].numpy()
    exact = kernels.gaussian(x.unsqueeze(1), x)

    def output(K: Tensor) -> float:
        values, vectors = torch.linalg.eigh(K)
        features = ((vectors * values.clamp(min=0).sqrt()) @ vectors.mT).numpy()
        options = {"loss": "hinge", "fit_intercept": False, "tol": 1e-6, "max_iter": 200_000}
        machine = svm.LinearSVC(C=c / 15, **options).fit(features[:15], labels)
        return float(machine.decision_function(features[15:])[0])

    before, reached = output(exact), []
    for seed in range(3):
        estimate = gram(name, x, 1000, seed)
        spectral = torch.linalg.matrix_norm(estimate - exact, 2).item()
        change = abs(output(estimate) - before)
        reached.append(change / theory.svm_prediction_bound(name, spectral, c))
    assert 1e-4 < max(reached) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_mmd_of_features(name):
    """Squared MMD of two samples over 8,000 draws: no bias (|z| > 4 once in 16,000 tries), and
    no more in the tails than bound."""
    x, y = points(3, 2, 1, 2.0), points(4, 2, 2, 2.0) + 3
    rows, both = 16, torch.cat((x, y))
    weights = torch.tensor([1 / 3] * 3 + [-1 / 4] * 4, dtype=torch.float64)
    exact = weights @ kernels.gaussian(both.unsqueeze(1), both) @ weights
    squares = torch.einsum("i,hij,j->h", weights, drawn(name, rows, both, both, 8_000, 4), weights)
    assert z_score(squares, exact).abs() < 4
    for epsilon in (1.0, 1.5, 2.0):
        bound = theory.mmd_tail_bound(name, rows, epsilon)
        assert ((squares - exact).abs() >= epsilon).double().mean() <= bound
    largest = 4 if name == "trig" else 8
    hoeffding = 2 * math.exp(-2 * (rows // 2 if name == "trig" else rows) * 1.5**2 / largest**2)
    assert theory.mmd_tail_bound(name, rows, 1.5) == pytest.approx(hoeffding, rel=1e-12)
