"""Arguments that the functions of `attention.theory` reject, each in one sentence."""

import math
from typing import Any

import pytest
import torch

from attention import theory as t
from tests.attention.cases import X, Y, rejects

COUPLED = "one of iid, orthogonal, simplex for a closed form, got"
COUNT = "must be at least 1, got 0"
POSITIVE = "must be a positive finite number, got"
KERNEL = "kernel must be one of softmax, gaussian, got 'rbf'"
CENTERS = {"query_centers": X[None], "key_centers": Y[None]}
GAUSSIAN = CENTERS | {"coefficients": "gaussian"}
EYE = torch.eye(2, dtype=X.dtype)


def ce(A: Any) -> Any:
    return t.mse("complex_exponential", X, Y, 2, A=torch.tensor(A))


def clustered(**options: Any) -> Any:
    return t.mse("clustered_hybrid", X, Y, 2, **options)


CASES = [
    (lambda: t.mse("halton", X, X, 4), "known for angular_hybrid, .*, trig_phase, got 'halton'"),
    (lambda: t.mse("trig", X, X[:1], 4), r"same last dimension, got shapes \(2,\) and \(1,\)"),
    (lambda: t.mse("trig", X, X, 4, projection="fast_simplex"), f"{COUPLED} 'fast_simplex'"),
    (lambda: t.mse("trig", X, X, 4, projection="hadamard"), f"{COUPLED} 'hadamard'"),
    (lambda: t.mse("trig", X, X, 4, projection="halton"), f"{COUPLED} 'halton'"),
    (lambda: t.mse("trig", X, X, 4, projection="simplex_plus"), f"{COUPLED} 'simplex_plus'"),
    (lambda: t.mse("positive", X[:1], X[:1], 4, projection="simplex"), "dimension 2 or more, got"),
    (lambda: t.mse("trig", X, X, 4, num_lambda_features=3), "trig takes no options, got 'num_l"),
    (lambda: t.mse("trig", X, X, 0), f"num_features {COUNT}"),
    (lambda: t.mse("trig", X, X, 4.5), r"num_features must be an integer, got 4\.5"),
    (lambda: t.mse("trig", X, X, 4, kernel="gaussian", sigma=math.inf), f"sigma {POSITIVE} inf"),
    (lambda: t.mse("trig", X, X, 4, kernel="gaussian", sigma=math.nan), f"sigma {POSITIVE} nan"),
    (lambda: t.mse("trig", X, X, 4, sigma=2.0), r"sigma must be 1 for the softmax .*, got 2\.0"),
    (lambda: t.mse("trig", X, X, 4, kernel="rbf"), KERNEL),
    (lambda: t.mse("poisson_plus", X, X, 4), r"needs the option 'shift', got \[\]"),
    (lambda: t.mse("geometric_plus", X, X, 4), r"needs the option 'shift', got \[\]"),
    (lambda: t.mse("poisson", X, X, 4, lam=0.0), "lam must be positive, got 0"),
    (lambda: t.mse("geometric", X, X, 4, p=0.0), "p must be between 0 and 1, got 0.0"),
    (lambda: t.mse("geometric", X, X, 4, p=1.0), "p must be between 0 and 1, got 1.0"),
    (lambda: t.mse("oprf", X, X, 4, A=0.125), r"real part below 1/8 for a .* error, got 0\.125"),
    (lambda: t.mse("oprf", X, X, 4, A=0.1j), "A of oprf must be real"),
    (lambda: t.mse("gerf", X, X, 4, s=2), "s must be 1 or -1, got 2"),
    (lambda: t.mean_square_of_sums(EYE, EYE, 0), "s must be 1 or -1, got 0"),
    (lambda: t.conformity_at_angle(-1.5, X, 4), "cos_theta must be between -1 and 1, got -1.5"),
    (lambda: t.conformity_at_angle(1.5, X, 4), "cos_theta must be between -1 and 1, got 1.5"),
    (lambda: t.conformity_at_angle(0.0, X, 0), f"dim {COUNT}"),
    (lambda: t.rf_conformity("orthogonal", X, 0), f"dim {COUNT}"),
    (lambda: t.resultant_density("halton", 1.0, 4), f"{COUPLED} 'halton'"),
    (lambda: t.resultant_density("simplex", 1.0, 1), "needs dimension 2 or more, got 1"),
    (lambda: t.resultant_density_at_angle(-2, 1.0, 4), "must be between -1 and 1, got -2"),
    (lambda: t.resultant_density_at_angle(0.5, 1.0, 0), f"dim {COUNT}"),
    (lambda: t.coupling_gap("poisson", X, X, 2), "for gerf, .*, trig_phase, got 'poisson'"),
    (lambda: t.coupling_gap("trig", X, X, 0), f"num_features {COUNT}"),
    (lambda: t.coupling_gap("trig", X, X, 1, kernel="rbf"), KERNEL),
    (lambda: t.orthogonality_gap_bound(X, X, 0), "must be from 1 to dimension 2, got 0"),
    (lambda: t.orthogonality_gap_bound(X, X, 3), "must be from 1 to dimension 2, got 3"),
    (lambda: t.orthogonality_gap_bound(X, X, 1, kernel="rbf"), KERNEL),
    (lambda: t.trig_asymptotic_ratio(X, X, 3), "must be from 1 to dimension 2, got 3"),
    (lambda: t.small_sum_factor("iid", 0, 2), f"num_features {COUNT}"),
    (lambda: t.small_sum_factor("halton", 2, 2), f"{COUPLED} 'halton'"),
    (lambda: t.small_sum_factor("simplex", 1, 1), "needs dimension 2 or more, got 1"),
    (lambda: t.oprf_tail_bound(X, X, 0, 0.1, -0.1), f"num_features {COUNT}"),
    (lambda: t.oprf_tail_bound(X, X, 1, 0.0, -0.1), f"error {POSITIVE} 0"),
    (lambda: t.oprf_tail_bound(X, X, 1, 0.1, 0.0), "A must be negative for a bounded .*, got 0"),
    (lambda: t.oprf_tail_bound(X, X, 1, 0.1, -0.1, kernel="rbf"), KERNEL),
    (lambda: t.oprf_upper_tail_bound(X, Y, 1, 0.1, 0.0), "A must be negative for a .*, got 0"),
    (lambda: t.oprf_upper_tail_bound(X, Y, 0, 0.1, -0.1), f"num_features {COUNT}"),
    (lambda: t.oprf_upper_tail_bound(X, Y, 1, 0, -0.1), f"error {POSITIVE} 0"),
    (lambda: t.uniform_attention_bound(2, 1.0, 3, 0.1, 0.0), "A must be negative and finite"),
    (lambda: t.uniform_attention_bound(2, 1.0, 3, 0.1, -math.inf), "A must be negative and fin"),
    (lambda: t.uniform_attention_bound(0, 1.0, 3, 0.1, -0.1), f"dim {COUNT}"),
    (lambda: t.uniform_attention_bound(2, 0, 3, 0.1, -0.1), f"radius {POSITIVE} 0"),
    (lambda: t.uniform_attention_bound(2, 1.0, 0, 0.1, -0.1), f"num_features {COUNT}"),
    (lambda: t.uniform_attention_features(2, 1.0, 0.1, 0, -0.1), f"probability {POSITIVE} 0"),
    (lambda: t.relative_error("oprf", 1.0, 1.0, 2), "one of angular_hybrid, .*, got 'oprf'"),
    (lambda: t.max_relative_error("trig", 0, 2), f"r {POSITIVE} 0"),
    (lambda: t.max_relative_error("trig", 1.0, 0), f"m {COUNT}"),
    (lambda: t.max_relative_error("trig", 1.0, 2.5), r"m must be an integer, got 2\.5"),
    (lambda: t.angular_relative_error_slope(1.0, 2, 0), f"n {COUNT}"),
    (lambda: t.angular_relative_error_bound(0.9, 2, 2), "r must be at least 1 for .*, got 0.9"),
    (lambda: t.uniform_constant("positive", 2), "one of trig, trig_phase, got 'positive'"),
    (lambda: t.uniform_bound("trig", 2, 1.0, 10, 0), f"epsilon {POSITIVE} 0"),
    (lambda: t.largest_cosine_variance(-1), f"diameter {POSITIVE} -1"),
    (lambda: t.kernel_lipschitz(0), f"sigma {POSITIVE} 0"),
    (lambda: t.expected_largest_projection(2, 0), f"count {POSITIVE} 0"),
    (lambda: t.expected_max_error_bound("trig", 2, 1.0, 7), "rows must be even for trig, got 7"),
    (lambda: t.concentration_bound("trig", 2, 0, 0.1), f"expected_max {POSITIVE} 0"),
    (lambda: t.expected_l2_error("oprf", EYE, EYE, 4), "one of trig, trig_phase, got 'oprf'"),
    (lambda: t.expected_l2_error("trig_phase", EYE, EYE, 0), f"rows {COUNT}"),
    (lambda: t.expected_gaussian_l2_error("trig", 2, 5, 1.0), "must be even for trig, got 5"),
    (lambda: t.expected_gaussian_l2_error("trig", 2, 4, 0), f"spread {POSITIVE} 0"),
    (lambda: t.l2_concentration_bound("elu", 4, 0.1), "one of trig, trig_phase, got 'elu'"),
    (lambda: t.l2_concentration_bound("trig", 4, 0), f"epsilon {POSITIVE} 0"),
    (lambda: t.mmd_tail_bound("elu", 4, 0.1), "one of trig, trig_phase, got 'elu'"),
    (lambda: t.mmd_tail_bound("trig", 4, 0), f"epsilon {POSITIVE} 0"),
    (lambda: t.svm_prediction_bound("elu", 0.1, 1.0), "one of trig, trig_phase, got 'elu'"),
    (lambda: t.svm_prediction_bound("trig", 0.1, 0), f"c {POSITIVE} 0"),
    (lambda: t.ridge_prediction_bound(0.1, 1.0, 0), f"penalty {POSITIVE} 0"),
    (lambda: ce([[1.0, 2.0], [2.0, 4.0]]), "A must be invertible, got rank 1 with d = 2"),
    (lambda: ce([0.0, 1.0]), "A must be invertible, got rank 1 with d = 2"),
    (lambda: ce([[0j, 0j], [0j, 0j]]), "A must be invertible, got rank 0 with d = 2"),
    (lambda: ce([1.0, 1.0, 1.0]), r"A must have shape \(2,\) or \(2, 2\), got \(3,\)"),
    (lambda: ce([1.0, math.nan]), "A must be finite"),
    (lambda: t.optimal_diagonal(X, Y, floor=2.0, cap=3.0), r"floor <= 1 <= cap, got 2\.0 and 3"),
    (lambda: t.shared_covariance("oprf", "trig", X, Y, A=0.125), "A must be less than 1/8 .*0.125"),
    (lambda: t.shared_covariance("trig", "relu", X, Y), "of hyperbolic, .*, got 'trig' and 'relu'"),
    (lambda: t.hybrid_mse(EYE, torch.eye(3)), r"with one p, got \(2, 2\) and \(3, 3\)"),
    (lambda: t.hybrid_multiplications(2, 2, 2, lambda_functions=(1, 1)), "one entry more .* 2 and"),
    (lambda: t.gaussian_coefficient_variance(X, Y, 2, EYE, 0), f"c {POSITIVE} 0"),
    (lambda: t.nested_hybrid_mse(X, X, 0, 0.1), f"num_features {COUNT}"),
    (lambda: t.nested_hybrid_mse(X, X, 2, 0.1, projection="orthogonal"), "nested_hybrid with shar"),
    (lambda: clustered(query_centers=X[None], key_centers=Y), r"\(clusters, 2\), got shape \(2,\)"),
    (lambda: clustered(lambda_projection="simplex", **CENTERS), "only, got 'iid' and 'simplex'"),
    (lambda: clustered(coefficients="oprf", **CENTERS), "coefficients must be one of gaussian, z"),
    (lambda: clustered(lambda_features="oprf", **CENTERS), "lambda_features must be one of posit"),
    (lambda: clustered(default_base="oprf", **CENTERS), "default_base must be one of hyperbolic, "),
    (lambda: clustered(num_lambda_features=0, **GAUSSIAN), f"num_lambda_features {COUNT}"),
    (lambda: clustered(lambda_scale=0, **GAUSSIAN), f"lambda_scale {POSITIVE} 0"),
    (lambda: clustered(pairs=[[0, 3]], **CENTERS), r"pairs must be \(p, 2\), distinct pairs o"),
    (lambda: clustered(pairs=[[0, 0], [0, 0]], **CENTERS), r"pairs must be \(p, 2\), distinct"),
    (lambda: clustered(pairs=[0, 0], **CENTERS), r"pairs must be \(p, 2\), distinct pairs"),
    (lambda: clustered(pairs=[[0.5, 0.0]], **CENTERS), r"pairs must be \(p, 2\), distinct pairs"),
]  # fmt: skip

HYBRIDS = [
    ("angular_hybrid", {"lambda_projection": "simplex"}, "lambda_projection='iid' only, got 'simp"),
    ("gaussian_hybrid", {"lambda_sigma": 0}, f"lambda_sigma {POSITIVE} 0"),
    ("gaussian_hybrid", {"radius": -1.0}, f"radius {POSITIVE} -1.0"),
    ("gaussian_hybrid", {"radius": math.inf}, f"radius {POSITIVE} inf"),
    ("gaussian_hybrid", {"lambda_features": "oprf"}, "features must be one of positive, trig, got"),
    *(
        (name, options, message)
        for name in ("angular_hybrid", "gaussian_hybrid")
        for options, message in (
            ({"projection": "simplex"}, f"{name} with shared projections .* 'simplex'"),
            ({"base": ("trig",)}, "base must be two of hyperbolic, oprf, positive, trig, got"),
            ({"base": (["trig"], "trig")}, r"base must be two of .*, got \(\['trig'\], 'trig'\)"),
            ({"num_lambda_features": 0}, f"num_lambda_features {COUNT}"),
        )
    ),
    *(
        (name, {"projection": "orthogonal", **options}, "for projection='iid' only")
        for name, options in (
            ("complex_exponential", {"A": 1.0}),
            ("geometric", {}),
            ("geometric_plus", {"shift": 0 * X}),
            ("poisson", {}),
            ("poisson_plus", {"shift": 0 * X}),
        )
    ),
]


@pytest.mark.parametrize(("call", "message"), CASES)
def test_a_function_names_the_argument(call, message):
    rejects(message, call)


@pytest.mark.parametrize(("name", "options", "message"), HYBRIDS)
def test_an_error_names_the_option(name, options, message):
    rejects(message, t.mse, name, X, Y, 2, **options)
