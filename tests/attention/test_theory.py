"""Closed forms: limits, coupling, defaults; numbers, lists and arrays do for tensors. `test_golden`
checks the values."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import theory
from attention.theory.error import _CLOSED_FORMS
from tests.attention.cases import rejects


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


@pytest.mark.parametrize("name", sorted(_CLOSED_FORMS))
def test_defaults_are_those_of_the_map(name):
    """An error without options is that of the map without options, couplings apart."""
    of_map = inspect.signature(type(attention.feature_map(name, 4, 6))).parameters
    for option, parameter in inspect.signature(_CLOSED_FORMS[name]).parameters.items():
        shared = option in of_map and "projection" not in option.split("_")
        if shared and parameter.default is not parameter.empty:
            assert parameter.default == of_map[option].default, option


X, Y = [0.3, -0.2, 0.5], [0.1, 0.4, -0.3]
SWAP = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
CALLS: dict[str, list[Any]] = {
    "angle": [X, Y],
    "bipolar_coefficient": [X, Y],
    "bipolar_moments": [X, Y, 4],
    "center_loss": [X, Y, [1.0, 2j, -1.0]],
    "complex_exponential_covariance": [X, Y, 1j, [1.0, 2.0, 3.0]],
    "complex_exponential_moment": [X, Y, 1j, [1.0, 2.0, 3.0]],
    "conformity_at_angle": [-0.5, 1.0, 8],
    "coupling_gap": ["trig", X, Y, 8],
    "expected_l2_error": ["trig", [X, Y], [Y], 8],
    "gaussian_coefficient": [X, Y, SWAP],
    "gaussian_coefficient_variance": [X, Y, 4, SWAP],
    "geometric_parameter": [[0.1, 0.4, 0.2]],
    "gerf_parameter": [1.5, 3],
    "has_zero_variance": [X, Y, 1j],
    "hybrid_mse": [[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.1], [0.1, 2.0]]],
    "lambda_moments": [1, 4],
    "least_real_loss": [X, Y],
    "mean_square_of_sums": [[X, Y], [Y]],
    "mse": ["positive", X, Y, 8],
    "nested_hybrid_mse": [X, Y, 8, [0.1]],
    "optimal_diagonal": [X, Y],
    "oprf_parameter": [2, 3],
    "oprf_rho": [2.0, 3],
    "oprf_tail_bound": [X, Y, 8, 0.1, -0.2],
    "oprf_upper_tail_bound": [X, Y, 8, 0.1, -0.2],
    "orthogonality_gap_bound": [X, Y, 3],
    "poisson_parameter": [[0.1, 0.4, 0.2]],
    "relative_error": ["trig", 1.0, 1.0, 8],
    "resultant_density": ["simplex", 1.0, 8],
    "resultant_density_at_angle": [-0.5, 1.0, 8],
    "rf_conformity": ["simplex", 1.0, 8],
    "shared_covariance": ["positive", "trig", X, Y],
    "trig_asymptotic_ratio": [X, Y, 3],
}
SECOND = {"conformity_at_angle", "relative_error", "rf_conformity", "resultant_density"}
SECOND |= {"resultant_density_at_angle"}
"""Functions whose second argument is the number that may be a tensor."""


def tensors(arguments: list[Any], dtype: torch.dtype, first: str) -> list[Any]:
    """The arguments with lists as tensors, and the number that is not a count too."""
    made = [
        torch.tensor(a, dtype=None if _complex(a) else dtype) if isinstance(a, list) else a
        for a in arguments
    ]
    if any(isinstance(a, list) for a in arguments):
        return made
    place = 1 if first in SECOND else 0
    made[place] = torch.tensor(made[place], dtype=dtype)
    return made


def _complex(value: Any) -> bool:
    return any(isinstance(v, complex) for v in value)


def as_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_numbers_lists_and_dtypes(name):
    """Numbers and lists do for tensors."""
    function, arguments = getattr(theory, name), CALLS[name]
    expected = as_tuple(function(*tensors(arguments, torch.float64, name)))
    for given in (
        arguments,
        [np.array(a) if isinstance(a, list) else a for a in arguments],
        [tuple(a) if isinstance(a, list) else a for a in arguments],
    ):
        for ours, theirs in zip(as_tuple(function(*given)), expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert_close(ours, theirs, rtol=1e-13, atol=0)
    # One list left beside float32 tensors is float32 too.
    given = tensors(CALLS[name], torch.float32, name)
    lists = [i for i, a in enumerate(CALLS[name]) if isinstance(a, list) and not _complex(a)]
    if len(lists) > 1:
        given[lists[-1]] = CALLS[name][lists[-1]]
    for result in as_tuple(getattr(theory, name)(*given)):
        assert result.dtype in (torch.float32, torch.complex64, torch.bool)


def test_a_number_is_a_vector_of_one_dimension():
    one = torch.tensor([0.5], dtype=torch.float64), torch.tensor([0.25], dtype=torch.float64)
    for x, y in ((0.5, 0.25), (0.5, one[1]), (torch.tensor(0.5).double(), 0.25)):
        assert theory.mse("trig", x, y, 4) == theory.mse("trig", *one, 4)
        assert theory.angle(x, y) == 0
        expected = theory.gaussian_coefficient(*one, torch.tensor([[2.0]]).double())
        assert_close(theory.gaussian_coefficient(x, y, 2.0), expected)
    integers = theory.rf_conformity("simplex", torch.tensor([0, 1]), 8)
    assert integers.tolist() == [1.0, theory.rf_conformity("simplex", 1.0, 8).item()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("clustered_hybrid", {"query_centers": [X, Y], "key_centers": [Y], "pairs": [[1, 0]]}),
        ("complex_exponential", {"A": [1.0, 2j, 1.0]}),
        ("geometric_plus", {"shift": [-1, -1, -1], "p": 0.5}),
        ("poisson_plus", {"shift": [-1.0, -0.5, -1.0]}),
    ],
)
def test_options_may_be_lists(name, options):
    given = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
    expected = theory.mse(name, torch.tensor(X), torch.tensor(Y), 8, **given)
    for x, y in ((X, Y), (torch.tensor(X), torch.tensor(Y))):
        assert_close(
            theory.mse(name, x, y, 8, **options), expected, check_dtype=False, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.rf_conformity("iid", "1", 8), "v must be made of numbers, got '1'"),
        (lambda: theory.mse("trig", X, None, 8), "y must be made of numbers, got None"),
        (lambda: theory.angle([[1.0], [1.0, 2.0]], X), r"x must be made of numbers, got \[\[1.0\]"),
        (lambda: theory.mse("trig", X, [1.0], 8), "x and y must have the same last dimension"),
    ],
)
def test_what_is_no_number(call, message):
    rejects(message, call)
