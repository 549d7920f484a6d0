"""Arguments that maps and projections refuse: one clear sentence names each."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import attention
from attention import kernels, projection
from attention.features import PositiveFeatures
from attention.hybrid import GaussianCoefficient
from attention.projections import FastProjection, simplex_matrix, simplex_product
from tests.attention.cases import rejects

ones, zeros, nan, inf = torch.ones, torch.zeros, math.nan, math.inf
BASES = "base must be two of hyperbolic, oprf, positive, trig, got"
LIMITS = "a_limits must satisfy 0 < least <= 1 <= largest, got"
MARGIN = "margin must be a finite number of at least 0, got"
POSITIVE = "must be a positive finite number, got"
REAL = "must be made of real numbers, got"
LAMBDA_COUNT = "num_lambda_features must be at least 1, got 0"
CENTERS = {"query_centers": ones(2, 3), "key_centers": ones(3, 3)}
OPTIONS = {
    "oprf": [
        ({"A": 0.1}, "A must be at most 0, got 0.1"),
        ({"A": nan}, "A must be finite, got nan"),
        ({"A": zeros(2)}, r"A must be a number, got shape \(2,\)"),
        ({"A": [-0.1, -0.2]}, r"A must be a number, got shape \(2,\)"),
        ({"A": zeros(3), "heads": 2}, r"number or a tensor of shape \(2,\), got shape \(3,\)"),
        ({"A": -0.1j}, rf"A {REAL} \(?-0j?-?0?.1j\)?"),
        ({"A": "x"}, f"A {REAL} 'x'"),
        ({"A": False}, f"A {REAL} False"),
    ],
    "gerf": [
        ({"A": 0.25}, "A must have a real part below 1/4, got 0.25"),
        ({"A": 0.3 + 1j}, r"A must have a real part below 1/4, got \(0.3\+1j\)"),
        ({"A": "x"}, "A must be made of numbers, got 'x'"),
        ({"s": 0}, "s must be 1 or -1, got 0"),
    ],
    "complex_exponential": [
        ({"A": zeros(2)}, r"A must have shape \(3,\) or \(3, 3\), got"),
        ({"A": [1.0, 0.0, 2.0]}, "A must be invertible, got rank 2"),
        ({"A": ones(3, 3)}, "A must be invertible, got rank 1"),
        ({"A": 1j * ones(3, 3)}, "A must be invertible, got rank 1"),
        ({"A": nan}, "A must be finite, got a non"),
        ({"A": "x"}, "A must be made of numbers, got 'x'"),
    ],
    "poisson": [
        ({"lam": 0.0}, "lam must be positive, got 0"),
        ({"lam": -1.0}, "lam must be positive, got -1"),
        ({"lam": "x"}, f"lam {REAL} 'x'"),
        ({"lam": 0.1j}, f"lam {REAL} 0.1j"),
        ({"projection": "simplex"}, "projection must be integers, 'iid' .* got 'simplex'"),
        ({"projection": zeros(3, 3)}, r"must have shape \(4, 3\), got a tensor of shape \(3, 3\)"),
        ({"projection": torch.full((4, 3), 0.5)}, "must hold integers of 0 and above"),
        ({"projection": torch.full((4, 3), -1)}, "must hold integers of 0 and above"),
    ],
    "poisson_plus": [
        ({"lam": inf}, "lam must be finite, got inf"),
        ({"shift": zeros(2)}, r"shift must have shape \(3,\), got .* \(2,\)"),
        ({"shift": zeros(3) / 0}, "shift must be finite, got a non"),
        ({"margin": inf}, f"{MARGIN} inf"),
    ],
    "geometric": [
        ({"p": 0.0}, r"p must be between 0 and 1, got \[0.0\]"),
        ({"p": {}}, f"p {REAL} {{}}"),
    ],
    "geometric_plus": [
        ({"p": 1.0}, r"p must be between 0 and 1, got \[1.0\]"),
        ({"margin": -1.0}, f"{MARGIN} -1.0"),
    ],
    "trig": [({"projection": zeros(3, 4)}, r"must have shape \(4, 3\), got .*\(3, 4\)")],
    "trig_phase": [
        ({"phase": zeros(3)}, r"phase must have shape \(4,\), got .* \(3,\)"),
        ({"phase": [0.0]}, r"phase must have shape \(4,\), got .*\(1,\)"),
        ({"phase": [nan] * 4}, "phase must be finite, got a non"),
        ({"phase": "x"}, f"phase {REAL} 'x'"),
    ],
    "quadratic": [
        ({"c": -1.0}, "c must be a finite number of at least 0, got -1.0"),
        ({"c": inf}, "c must be a finite number of at least 0, got inf"),
        ({"s": 0.0}, f"s {POSITIVE} 0.0"),
        ({"projection": zeros(4, 3)}, "projection of quadratic, which takes no .* a tensor"),
    ],
    "relu": [
        ({"epsilon": "1"}, f"epsilon {POSITIVE} '1'"),
        ({"epsilon": 0.0}, f"epsilon {POSITIVE} 0.0"),
    ],
    "elu": [
        ({"projection": "none"}, "projection of elu, which takes no .* got 'none'"),
        ({"projection": zeros(4, 3)}, "projection of elu, which takes no .* a tensor"),
    ],
    "harmonic": [
        ({"projection": zeros(4, 3)}, "projection of harmonic, which takes no"),
        ({"kappa": 0.0}, "kappa must be a positive finite number, or one for each of dim="),
        ({"period": (1.0, 2.0)}, r"period must be .* dim=3 axes, got \(1.0, 2.0\)"),
    ],
    "angular_hybrid": [
        ({"num_lambda_features": 0}, LAMBDA_COUNT),
        ({"base": ("trig", "relu")}, rf"{BASES} \('trig', 'relu'\)"),
        ({"base": (["trig"], "trig")}, rf"{BASES} \(\['trig'\], 'trig'\)"),
        ({"base": None}, f"{BASES} None"),
        ({"shared_projections": "no"}, "shared_projections must be True or False, got 'no'"),
        ({"lambda_projection": zeros(7, 3)}, r"lambda_projection must have shape \(8, 3\)"),
        ({"projection": ("simplex", "iid")}, "one name or tensor with shared_projections=True"),
        ({"projection": ("iid",), "shared_projections": False}, r"per base, got \('iid',\)"),
        ({"projection": zeros(4, 3), "shared_projections": False}, r"must have shape \(8, 3\)"),
    ],
    "gaussian_hybrid": [
        ({"lambda_sigma": 0.0}, f"lambda_sigma {POSITIVE} 0.0"),
        ({"lambda_sigma": inf}, f"lambda_sigma {POSITIVE} inf"),
        ({"radius": -1.0}, f"radius {POSITIVE} -1.0"),
        ({"radius": "1"}, f"radius {POSITIVE} '1'"),
        ({"lambda_features": "sine"}, "lambda_features must be one of positive, trig, got 'sine'"),
        ({"num_lambda_features": 0}, LAMBDA_COUNT),
    ],
    "clustered_hybrid": [
        ({"coefficients": "soft"}, "coefficients must be one of gaussian, zero_one, got 'soft'"),
        ({"default_base": "elu"}, "default_base must be one of hyperbolic, oprf, positive, trig"),
        ({"lambda_scale": 0.0}, f"lambda_scale {POSITIVE} 0.0"),
        ({"lambda_scale": inf}, f"lambda_scale {POSITIVE} inf"),
        ({"a_limits": (1,)}, rf"{LIMITS} \(1,\)"),
        ({"a_limits": 1.0}, f"{LIMITS} 1.0"),
        ({"a_limits": (2.0, 5.0)}, rf"{LIMITS} \(2.0, 5.0\)"),
        ({"query_centers": ones(2, 3) / 0}, "query_centers must be finite, got a non"),
        ({"key_centers": zeros(2, 3) / 0}, "key_centers must be finite, got a non"),
        ({"key_centers": ones(2, 2)}, r"key_centers must have shape \(2, 3\), got \(2, 2\)"),
        ({"query_centers": ones(3)}, r"query_centers must have shape \(.*, 3\), got \(3,\)"),
        ({"num_query_clusters": 0}, "num_query_clusters must be at least 1, got 0"),
        ({"coefficients": "gaussian", "num_lambda_features": 0}, LAMBDA_COUNT),
        ({"coefficients": "gaussian", "lambda_features": "sine"}, "of positive, trig, got 'sine'"),
        ({"num_pairs": 0}, "num_pairs must be at least 1, got 0"),
        ({**CENTERS, "num_pairs": 7}, "at most 6, the number of pairs of clusters, got 7"),
    ],
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, *case) for name, cases in OPTIONS.items() for case in cases],
)
def test_options_of_maps(name, options, message):
    rejects(message, attention.feature_map, name, 3, 4, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"projection": None}, "projection must be a tensor or one of fast_simplex, .*, got None"),
        ({"projection": "sobol"}, "projection must be a tensor or one of .*, got 'sobol'"),
        ({"projection": ("iid", "iid")}, r"projection must be a tensor or one of .*'iid', 'iid'"),
        ({"projection": [[1.0], [1.0, 2.0]]}, r"projection must be a tensor or one of .*2.0"),
        ({"projection": [[1.0, 2.0]]}, r"projection must have shape \(6, 4\), got .*\(1, 2\)"),
        ({"projection": torch.full((6, 4), nan)}, "projection must be finite, got a non"),
        ({"projection": torch.full((6, 4), inf)}, "projection must be finite, got a non"),
        ({"projection": ones(6, 4).int()}, "a floating-point dtype, got torch.int32"),
        ({"projection": np.ones((6, 4), complex)}, "a floating-point dtype, got torch.complex128"),
        ({"seed": None}, "seed must be an integer from .*, got None"),
        ({"seed": 1.0}, "seed must be an integer from .*, got 1.0"),
        ({"seed": 2**64}, "seed must be an integer from .* to 2..64 - 1, got 18446744073709551616"),
        ({"dtype": "float32"}, "dtype must be a floating-point torch.dtype or None, got 'float32'"),
        ({"dtype": torch.int64}, "dtype must be a floating-point .*, got torch.int64"),
        ({"dtype": torch.complex64}, "dtype must be a floating-point .*, got torch.complex64"),
    ],
)
def test_arguments_of_every_map(arguments, message):
    for build in (partial(attention.feature_map, "positive"), PositiveFeatures):
        if arguments.get("projection", "") is None and build is PositiveFeatures:
            continue
        rejects(message, build, 4, 6, **arguments)


@pytest.mark.parametrize("value", [8.0, "8", True])
@pytest.mark.parametrize("argument", ["dim", "num_features", "heads", "num_lambda_features"])
def test_counts_are_integers(argument, value):
    arguments = {"dim": 4, "num_features": 6, argument: value}
    message = f"^{argument} must be an integer, got {value!r}$"
    rejects(message, attention.feature_map, "angular_hybrid", **arguments)


TWO_OR_MORE = "d must be at least 2 for a simplex projection"
KNOWN = ", ".join(attention.available_projections())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(projection, "sobol", 2, 2), rf"a tensor or one of {KNOWN}, got 'sobol'"),
        (partial(projection, ["iid"], 2, 2), r"a tensor or one of .*, got \['iid'\]"),
        (partial(projection, "iid", 0, 2), "m must be at least 1, got 0"),
        (partial(projection, "iid", 1, -1), "d must be at least 1, got -1"),
        (partial(projection, "iid", 1, 1, heads=0), "heads must be at least 1, got 0"),
        (partial(projection, "iid", 2.0, 2), "m must be an integer, got 2.0"),
        (partial(projection, "iid", 2, "2"), "d must be an integer, got '2'"),
        (partial(projection, "iid", 2, 2, 0), "generator must be a torch.Generator or None, got 0"),
        (partial(projection, "iid", 2, 2, None, int), "dtype must be a floating-point .*'int'"),
        (partial(projection, "iid", 2, 2, dtype=torch.int64), "a floating-point .* torch.int64"),
        (partial(projection, "iid", 2, 2, heads=True), "heads must be an integer, got True"),
        (partial(simplex_matrix, 1), TWO_OR_MORE),
        (partial(simplex_product, ones(2, 1)), TWO_OR_MORE),
        (partial(FastProjection, "iid", 2, 2), "one of fast_simplex, hadamard, got 'iid'"),
        (partial(FastProjection, "hadamard", 0, 2), "m must be at least 1, got 0"),
        (partial(FastProjection, "hadamard", 1, 0), "d must be at least 1, got 0"),
        (partial(FastProjection("hadamard", 2, 4), zeros(5, 3)), "last dimension 4, got 3"),
        (partial(GaussianCoefficient, 3, 4, c=0), f"c {POSITIVE} 0"),
        (partial(GaussianCoefficient, 3, 4, c=inf), f"c {POSITIVE} inf"),
        (partial(GaussianCoefficient, 3, 4, M=torch.eye(2)), r"M must have shape \(3, 3\), got"),
        *(
            (partial(kernels.gaussian, ones(3), ones(3), sigma), f"sigma {POSITIVE} {sigma}")
            for sigma in (0, -1.0, inf, nan)
        ),
    ],
)
def test_arguments_of_projections_and_kernels(call, message):
    rejects(message, call)
