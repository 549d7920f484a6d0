"""Closed-form errors of the estimators, in the dtype of their inputs.

Functions also accept Python numbers and lists instead of tensors, in float64 unless another
argument is a tensor of another dtype. A number instead of a vector is a vector of dimension 1.
"""

from attention.theory.angular import angle, lambda_moments
from attention.theory.chernoff import oprf_upper_tail_bound
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
from attention.theory.l2_error import (
    expected_gaussian_l2_error,
    expected_l2_error,
    l2_concentration_bound,
)
from attention.theory.learning import mmd_tail_bound, ridge_prediction_bound, svm_prediction_bound
from attention.theory.nested import nested_hybrid_mse
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
from attention.theory.resultant import resultant_density, resultant_density_at_angle
from attention.theory.uniform import (
    concentration_bound,
    expected_largest_projection,
    expected_max_error_bound,
    kernel_lipschitz,
    largest_cosine_variance,
    uniform_bound,
    uniform_constant,
)
from attention.theory.uniform_attention import (
    uniform_attention_bound,
    uniform_attention_features,
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
    "expected_gaussian_l2_error",
    "expected_l2_error",
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
    "l2_concentration_bound",
    "lambda_moments",
    "largest_base_error",
    "largest_cosine_variance",
    "least_real_loss",
    "max_relative_error",
    "mean_square_of_sums",
    "mmd_tail_bound",
    "mse",
    "nested_hybrid_mse",
    "oprf_parameter",
    "oprf_rho",
    "oprf_tail_bound",
    "oprf_upper_tail_bound",
    "optimal_diagonal",
    "orthogonality_gap_bound",
    "poisson_parameter",
    "relative_error",
    "resultant_density",
    "resultant_density_at_angle",
    "rf_conformity",
    "ridge_prediction_bound",
    "shared_covariance",
    "small_sum_factor",
    "svm_prediction_bound",
    "trig_asymptotic_ratio",
    "uniform_attention_bound",
    "uniform_attention_features",
    "uniform_bound",
    "uniform_constant",
]
