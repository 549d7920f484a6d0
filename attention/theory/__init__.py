"""Closed-form errors of the estimators, in the dtype of their inputs."""

from attention.theory.angular import angle, lambda_moments
from attention.theory.conformity import rf_conformity
from attention.theory.error import mse

__all__ = ["angle", "lambda_moments", "mse", "rf_conformity"]
