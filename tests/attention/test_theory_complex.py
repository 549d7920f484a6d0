"""Complex exponentials against Gauss-Hermite quadrature of their definition in d = 2."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from attention import theory
from tests.attention.cases import COMPLEX, REAL, SM, X, Y, complex_estimate, expectation

DIAGONAL = torch.tensor([0.8, 1.5j], dtype=torch.complex128)
MATRICES = {
    "real": (REAL, REAL),
    "complex": (COMPLEX, COMPLEX),
    "diagonal": (DIAGONAL, DIAGONAL.diag()),
    "real diagonal": (REAL.diagonal(), REAL.diagonal().diag()),
}


@pytest.mark.parametrize("name", MATRICES)
def test_complex_exponential_against_quadrature(name):
    A, matrix = MATRICES[name]
    values = complex_estimate(matrix)
    assert_close(expectation(values), SM, rtol=1e-10, atol=0)
    error = expectation((values - SM).square())
    for m in (1, 3):
        computed = theory.mse("complex_exponential", X, Y, m, A=A)
        assert_close(computed, error / m, rtol=1e-9, atol=0)


@pytest.mark.parametrize("names", list(itertools.combinations(MATRICES, 2)))
def test_complex_exponentials_at_a_shared_projection(names):
    (first, matrix_1), (second, matrix_2) = (MATRICES[name] for name in names)
    moment = expectation(complex_estimate(matrix_1) * complex_estimate(matrix_2))
    computed = theory.complex_exponential_moment(X, Y, first, second)
    assert_close(computed, moment, rtol=1e-9, atol=0)
    covariance = theory.complex_exponential_covariance(X, Y, first, second)
    assert_close(covariance, moment - SM**2, rtol=1e-8, atol=0)
    scaled = theory.complex_exponential_moment(X, Y, first, second, "gaussian")
    assert_close(scaled, moment * (-(X @ X) - Y @ Y).exp(), rtol=1e-9, atol=0)


def test_multiples_of_the_identity_and_zero_variance():
    # I is the positive map, -I too, i I trig: to every digit near their zeros.
    for y in (Y, X + 1e-6 * Y, -X + 1e-6 * Y):
        for A, name in ((1.0, "positive"), (-1.0, "positive"), (1j, "trig"), (-1j, "trig")):
            computed = theory.mse("complex_exponential", X, y, 5, A=A)
            assert_close(computed, theory.mse(name, X, y, 5), rtol=1e-9, atol=0)
    inverse = torch.linalg.inv(REAL)
    x = -inverse @ (inverse.mT @ Y)
    assert theory.has_zero_variance(x, Y, REAL, tolerance=1e-12)
    assert not theory.has_zero_variance(x + 0.01, Y, REAL, tolerance=1e-12)
    assert theory.mse("complex_exponential", x, Y, 1, A=REAL) < 1e-28
    assert theory.has_zero_variance(Y, Y, 1j)
    assert theory.has_zero_variance(-Y, Y, 1.0)


def test_optimal_diagonal():
    """Coordinates at zero are held between floor and cap."""
    # The loss is a squared modulus.
    u, w = COMPLEX @ X.to(COMPLEX.dtype), torch.linalg.inv(COMPLEX).mT @ Y.to(COMPLEX.dtype)
    assert_close(theory.center_loss(X, Y, COMPLEX), (u + w).abs().square().sum())
    complex_a = theory.optimal_diagonal(X, Y)
    expected = torch.tensor([1j * math.sqrt(7 / 3), math.sqrt(2 / 5)], dtype=torch.complex128)
    assert_close(complex_a, expected, rtol=1e-14, atol=0)
    assert theory.center_loss(X, -X.flip(0), theory.optimal_diagonal(X, -X.flip(0))) < 1e-30
    assert theory.center_loss(X, Y, complex_a) < 1e-30
    real = theory.optimal_diagonal(X, Y, complex_a=False)
    assert not real.is_complex()
    least = theory.least_real_loss(X, Y)
    assert_close(theory.center_loss(X, Y, real), least, rtol=1e-12, atol=0)
    for factor in ([0.9, 1.0], [1.1, 1.0], [1.0, 0.9], [1.0, 1.1]):
        assert theory.center_loss(X, Y, real * torch.tensor(factor)) > least + 1e-4
    query = torch.tensor([0.0, 0.5, 0.0, 0.5, 1e-9], dtype=torch.float64)
    key = torch.tensor([0.5, 0.0, 0.0, -0.5, 1.0], dtype=torch.float64)
    assert theory.optimal_diagonal(query, key).tolist() == [1e2, 1e-2, 1.0, 1.0, 100j]
    held = theory.optimal_diagonal(query, key, complex_a=False, floor=0.1, cap=10.0)
    assert held.tolist() == [10.0, 0.1, 1.0, 1.0, 10.0]
    residual = theory.center_loss(query[:2], key[:2], theory.optimal_diagonal(query[:2], key[:2]))
    assert residual.item() == pytest.approx(2 * 0.005**2)
