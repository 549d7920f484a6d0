"""Closed forms: limits, coupling, dtypes, errors. Values are checked by test_golden."""

import inspect
import math

import pytest
import torch
from torch.testing import assert_close

import attention
from attention import theory
from attention.theory.error import _CLOSED_FORMS


def test_exact_where_the_papers_say():
    """Angles are accurate at both ends; a bandwidth scales inputs."""
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    zero = torch.zeros(5, dtype=torch.float64)
    assert torch.equal(theory.mse("trig", x, x, 3), zero)
    assert torch.equal(theory.mse("positive", x, -x, 3), zero)
    assert torch.equal(theory.mse("hyperbolic", x, -x, 3), zero)
    for y in (x, -x):
        for shared in (True, False):
            error = theory.mse("angular_hybrid", x, y, 3, shared_projections=shared)
            assert_close(error, zero, rtol=0, atol=1e-12)
    x = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for theta in (1e-9, 0.3, math.pi - 1e-9):
        y = 2 * torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
        assert theory.angle(x, y).item() == pytest.approx(theta, rel=1e-7)
    x = torch.tensor([0.4, -0.2], dtype=torch.float64)
    wide = theory.mse("trig", x, -x, 4, kernel="gaussian", sigma=2.0)
    assert wide == theory.mse("trig", x / 2, -x / 2, 4, kernel="gaussian")


@pytest.mark.parametrize("n", [1, 2, 7])
def test_lambda_moments_are_binomial(n):
    """n L counts the vectors whose signs differ: Binomial(n, theta/pi), summed exactly."""
    for p in (0.0, 0.2, 0.7, 1.0):
        expected = [0.0, 0.0, 0.0]
        for k in range(n + 1):
            probability, share = math.comb(n, k) * p**k * (1 - p) ** (n - k), k / n
            for i, value in enumerate((share**2, (1 - share) ** 2, share * (1 - share))):
                expected[i] += probability * value
        moments = theory.lambda_moments(torch.tensor(math.pi * p, dtype=torch.float64), n)
        assert [m.item() for m in moments] == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("d", [2, 3, 8, 33])
def test_conformity_against_a_chi_squared_average(d):
    """Two orthogonal rows: |w_i + w_j|^2 is chi^2 with 2d degrees, averaged over directions.

    E exp((w_i + w_j).z) = E 0F1(; d/2; S v^2/4) with S that chi^2: the terms' moments are exact.
    """
    for v in (0.3, 1.0, 2.5):
        term, total = 1.0, 1.0
        for k in range(200):
            term *= (v * v / 4) * (2 * (d + k)) / ((d / 2 + k) * (k + 1))
            total += term
        computed = theory.rf_conformity("orthogonal", torch.tensor(v, dtype=torch.float64), d)
        assert computed.item() == pytest.approx(total, rel=1e-13)


@pytest.mark.parametrize("name", sorted(_CLOSED_FORMS))
def test_defaults_are_those_of_the_map(name):
    """An error without options is that of the map without options, couplings apart."""
    of_map = inspect.signature(type(attention.feature_map(name, 4, 6))).parameters
    for option, parameter in inspect.signature(_CLOSED_FORMS[name]).parameters.items():
        shared = option in of_map and "projection" not in option.split("_")
        if shared and parameter.default is not parameter.empty:
            assert parameter.default == of_map[option].default, option
