"""Relative errors and bounds: against the errors of real pairs, and against their derivations."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from attention import kernels, theory

LENGTHS = (0.5, 1.0, 1.5, 3.0)


def on_sphere(theta: Tensor, r: float) -> tuple[Tensor, Tensor]:
    x = r * torch.tensor([1.0, 0.0], dtype=torch.float64).expand(len(theta), 2)
    return x, r * torch.stack((theta.cos(), theta.sin()), -1)


@pytest.mark.parametrize("name", ["angular_hybrid", "hyperbolic", "positive", "trig"])
@pytest.mark.parametrize("r", LENGTHS)
def test_curves_are_those_of_pairs(name, r):
    theta = torch.linspace(0.05, 3.1, 7, dtype=torch.float64)
    x, y = on_sphere(theta, r)
    options = {"num_lambda_features": 3} if name == "angular_hybrid" else {}
    expected = theory.mse(name, x, y, 5, **options).sqrt() / kernels.softmax(x, y)
    assert_close(theory.relative_error(name, theta, r, 5, 3), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("r", LENGTHS)
def test_maxima_and_slopes(r):
    # Lemma 3.4: W/sqrt(2m) at angle pi for trig, at 0 for hyperbolic.
    largest = theory.largest_base_error(r)
    assert largest == pytest.approx(math.exp(2 * r * r) - math.exp(-2 * r * r), rel=1e-12)
    for name, angle in (("trig", math.pi), ("hyperbolic", 0.0)):
        maximum = theory.max_relative_error(name, r, 7)
        assert maximum == pytest.approx(largest / math.sqrt(14), rel=1e-13)
        there = theory.relative_error(name, torch.tensor(angle, dtype=torch.float64), r, 7)
        assert there.item() == pytest.approx(maximum, rel=1e-13)
    positive = theory.max_relative_error("positive", r, 7)
    assert positive == pytest.approx(math.sqrt(math.expm1(4 * r * r) / 7), rel=1e-13)
    slope = theory.angular_relative_error_slope(r, 16, 4)
    small = 1e-8
    for theta in (small, math.pi - small):
        angle = torch.tensor(theta, dtype=torch.float64)
        error = theory.relative_error("angular_hybrid", angle, r, 16, 4).item()
        assert error / math.sqrt(small) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("n", [1, 8, 100])
@pytest.mark.parametrize("r", LENGTHS)
def test_angular_maximum(r, n):
    """No angle of a grid exceeds it; the grid comes within its own resolution; m scales it."""
    theta = torch.linspace(0, math.pi, 30001, dtype=torch.float64)
    grid = theory.relative_error("angular_hybrid", theta, r, 16, n).max().item()
    maximum = theory.max_relative_error("angular_hybrid", r, 16, n)
    assert grid <= maximum <= grid * (1 + 1e-6)
    assert theory.max_relative_error("angular_hybrid", r, 4, n) == pytest.approx(2 * maximum)
    if r >= 1:
        assert maximum <= theory.angular_relative_error_bound(r, 16, n) <= 10 * maximum


@pytest.mark.parametrize(
    ("n", "r", "exact", "printed"), [(1, 5, 0.1169, 0.1062), (2, 8, 0.0662, 0.0587)]
)
def test_the_printed_bound_fails_and_the_corrected_one_holds(n, r, exact, printed):
    """In units of W with m = 1: the printed share lacks a factor r."""
    unit = theory.largest_base_error(r)
    maximum = theory.max_relative_error("angular_hybrid", r, 1, n) / unit
    assert maximum == pytest.approx(exact, abs=6e-5)
    share = (1 - 1 / n) / math.pi + 1 / (n * math.sqrt(math.pi))
    assert math.sqrt(share / 2) / r == pytest.approx(printed, abs=6e-5)
    assert printed < maximum <= theory.angular_relative_error_bound(r, 1, n) / unit


def least_bound(first: float, power: int, second: float) -> float:
    """min over r of first r^-power + second r^2, by a fine grid in log r around the stationary."""
    center = math.log(first * power / (2 * second)) / (power + 2)
    r = (center + torch.linspace(-0.5, 0.5, 100001, dtype=torch.float64)).exp()
    return (first * r**-power + second * r**2).min().item()


@pytest.mark.parametrize("sigma", [1.0, 0.7])
@pytest.mark.parametrize("dim", [1, 2, 8])
def test_uniform_bounds_are_the_least_of_a_covering(dim, sigma):
    """Union bound over T balls of radius r, and Markov's inequality for the Lipschitz constant."""
    ell, rows, epsilon = 2.5, 3000, 0.3
    variance = theory.largest_cosine_variance(ell, sigma)
    moment = dim / sigma**2
    alpha = min(1, variance / 2 + epsilon / 3)
    balls = 2 * (4 * ell) ** dim * math.exp(-rows * epsilon**2 / (16 * alpha))
    expected = least_bound(balls, dim, moment * (2 / epsilon) ** 2)
    bound = theory.uniform_bound("trig", dim, ell, rows, epsilon, sigma)
    assert bound == pytest.approx(expected, rel=1e-8)
    alpha = min(1, (1 + variance) / 8 + epsilon / 6)
    balls = 2 * (2 * math.sqrt(2) * ell) ** (2 * dim) * math.exp(-rows * epsilon**2 / (32 * alpha))
    expected = least_bound(balls, 2 * dim, 3 * moment * (2 / epsilon) ** 2)
    bound = theory.uniform_bound("trig_phase", dim, ell, rows, epsilon, sigma)
    assert bound == pytest.approx(expected, rel=1e-8)


def test_constants_and_expected_maximum():
    for name, largest, at, limit in (("trig", 66, 64, 64), ("trig_phase", 98, 48, 96)):
        constants = [theory.uniform_constant(name, d) for d in range(1, 400)]
        assert max(constants) == pytest.approx(largest, rel=2e-4)
        assert constants.index(max(constants)) + 1 == at
        assert theory.uniform_constant(name, 10**7) == pytest.approx(limit, rel=1e-4)
    # By parts; a bandwidth is a unit of length; psi has twice the factor and projections.
    largest = theory.expected_largest_projection(3, 50)
    expected = 24 * 0.964 * math.sqrt(3) * 2 / 10 * (math.exp(-0.5) + largest)
    assert theory.expected_max_error_bound("trig", 3, 2.0, 100) == pytest.approx(expected)
    largest = theory.expected_largest_projection(3, 100)
    expected = 48 * 1.55 * math.sqrt(3) * 2 / 10 * (math.exp(-0.5) + largest)
    assert theory.expected_max_error_bound("trig_phase", 3, 2.0, 100) == pytest.approx(expected)
    twice = theory.expected_max_error_bound("trig_phase", 3, 2.0, 100, gamma=3.1)
    assert twice == pytest.approx(2 * expected)
    same = theory.expected_max_error_bound("trig_phase", 3, 4.0, 100, 2.0)
    assert same == pytest.approx(expected)
    for d in (1, 2, 3, 64, 500):
        mean = math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
        assert theory.expected_largest_projection(d, 1) == pytest.approx(mean, rel=1e-12)
    # max(|a|, |b|) = (|a + b| + |a - b|) / 2, and the larger of n Rayleigh variables.
    two = theory.expected_largest_projection(1, 2)
    assert two == pytest.approx(2 / math.sqrt(math.pi), rel=1e-12)
    for n in (2, 7, 20):
        terms = (math.comb(n, k) * (-1) ** (k + 1) / math.sqrt(k) for k in range(1, n + 1))
        expected = math.sqrt(math.pi / 2) * math.fsum(terms)
        assert theory.expected_largest_projection(2, n) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_variance_and_steepest_slope_of_the_kernel(sigma):
    delta = torch.linspace(0, 1.7, 1001, dtype=torch.float64).unsqueeze(-1)
    zero = torch.zeros_like(delta)
    kernel = kernels.gaussian(delta, zero, sigma)
    supremum = (1 + kernels.gaussian(2 * delta, zero, sigma) - 2 * kernel**2).max().item()
    assert theory.largest_cosine_variance(1.7, sigma) == pytest.approx(supremum, rel=1e-12)
    delta = torch.linspace(0, 8, 80001, dtype=torch.float64).unsqueeze(-1)
    kernel = kernels.gaussian(delta, torch.zeros_like(delta), sigma)
    steepest = (kernel.diff().abs().max() / 1e-4).item()
    assert theory.kernel_lipschitz(sigma) == pytest.approx(steepest, rel=1e-7)


def bousquet(terms: int, largest: float, variance: float, mean: float, excess: float) -> float:
    """P(Z >= E Z + t) for Z the supremum of a sum: exp(-t^2 / (2 v + 2 t/3)), v = n s^2 + 2 E Z.

    Terms scaled to at most 1: mean and excess of the average are those of Z times largest / n.
    """
    t = excess * terms / largest
    v = terms * variance / largest**2 + 2 * mean * terms / largest
    return math.exp(-(t**2) / (2 * v + 2 * t / 3))


@pytest.mark.parametrize("variance", [1.0, 0.4])
def test_concentration_follows_from_bousquet(variance):
    """phi: F/2 cosines less the kernel, at most 2; psi: F sums of two cosines, at most 3."""
    rows, mean, epsilon = 400, 0.1, 0.07
    expected = bousquet(rows // 2, 2, variance / 2, mean, epsilon)
    computed = theory.concentration_bound("trig", rows, mean, epsilon, variance)
    assert computed == pytest.approx(expected, rel=1e-12)
    expected = bousquet(rows, 3, (1 + variance) / 2, mean, epsilon)
    computed = theory.concentration_bound("trig_phase", rows, mean, epsilon, variance)
    assert computed == pytest.approx(expected, rel=1e-12)
