"""Closed-form errors of the estimators, in the dtype of their inputs.

Python's numbers and lists do for tensors, in float64 unless a tensor beside them says otherwise; a
number in place of a vector is one of dimension 1.
"""

from attention.theory.angular import angle, lambda_moments
from attention.theory.complex_exponential import (
    center_loss,
    complex_exponential_covariance,
    complex_exponential_moment,
    has_zero_variance,
    least_real_loss,
    optimal_diagonal,
)
from attention.theory.conformity import conformity_at_angle, rf_conformity
from attention.theory.error import mse
from attention.theory.gaps import (
    coupling_gap,
    orthogonality_gap_bound,
    small_sum_factor,
    trig_asymptotic_ratio,
)
from attention.theory.gaussian import (
    bipolar_coefficient,
    bipolar_moments,
    bipolar_normaliser,
    gaussian_coefficient,
    gaussian_coefficient_variance,
)
from attention.theory.gerf import oprf_tail_bound
from attention.theory.harmonic import harmonic_rms_error, harmonic_tail
from attention.theory.hybrid import hybrid_mse, hybrid_multiplications, shared_covariance
from attention.theory.optimal import (
    geometric_parameter,
    gerf_parameter,
    mean_square_of_sums,
    oprf_parameter,
    oprf_rho,
    poisson_parameter,
)
from attention.theory.relative_error import (
    angular_relative_error_bound,
    angular_relative_error_slope,
    largest_base_error,
    max_relative_error,
    relative_error,
)
from attention.theory.uniform import (
    concentration_bound,
    expected_largest_projection,
    expected_max_error_bound,
    kernel_lipschitz,
    largest_cosine_variance,
    uniform_bound,
    uniform_constant,
)

__all__ = [
    "angle",
    "angular_relative_error_bound",
    "angular_relative_error_slope",
    "bipolar_coefficient",
    "bipolar_moments",
    "bipolar_normaliser",
    "center_loss",
    "complex_exponential_covariance",
    "complex_exponential_moment",
    "concentration_bound",
    "conformity_at_angle",
    "coupling_gap",
    "expected_largest_projection",
    "expected_max_error_bound",
    "gaussian_coefficient",
    "gaussian_coefficient_variance",
    "geometric_parameter",
    "gerf_parameter",
    "harmonic_rms_error",
    "harmonic_tail",
    "has_zero_variance",
    "hybrid_mse",
    "hybrid_multiplications",
    "kernel_lipschitz",
    "lambda_moments",
    "largest_base_error",
    "largest_cosine_variance",
    "least_real_loss",
    "max_relative_error",
    "mean_square_of_sums",
    "mse",
    "oprf_parameter",
    "oprf_rho",
    "oprf_tail_bound",
    "optimal_diagonal",
    "orthogonality_gap_bound",
    "poisson_parameter",
    "relative_error",
    "rf_conformity",
    "shared_covariance",
    "small_sum_factor",
    "trig_asymptotic_ratio",
    "uniform_bound",
    "uniform_constant",
]
