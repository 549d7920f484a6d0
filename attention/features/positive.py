"""Positive features, the map of FAVOR+.

phi(u) = exp(-|u|^2/2) / sqrt(m) [exp(omega_i.u)]  for the softmax kernel (Hybrid Random Features
section 2.1; Chefs' Random Tables section 2.2). Strictly positive; exact at x = -y; relative error
explodes as |x+y| grows.
"""

import torch
from torch import Tensor

from attention.features.base import LogFeatures, ScaledFeatures, scaled_exp
from attention.features.projected import ProjectedFeatures


class PositiveFeatures(ProjectedFeatures):
    """Positive features: F = m, positive."""

    functions_per_projection = 1
    compiled_as = "positive"
    norm_exponent = -1.0

    def parts(self, projections: Tensor, log_weight: Tensor) -> tuple[Tensor, ...]:
        return ((projections + log_weight).exp(),)

    def write(self, out: Tensor, projections: Tensor, log_weight: Tensor) -> None:
        torch.add(projections, log_weight, out=out).exp_()

    def log_size(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        return log_weight + projections.amax(dim, keepdim=True)

    def evaluate_scaled(
        self, projections: Tensor, log_weight: Tensor, dim: int = -1
    ) -> ScaledFeatures:
        mantissa, log_scale = scaled_exp(projections, dim)
        return ScaledFeatures(mantissa, log_weight + log_scale)

    def log_queries(self, x: Tensor) -> LogFeatures:
        return LogFeatures(*self._project(x), own=True)
