"""Hyperbolic features: positive features at omega and -omega, written SM++ in the papers.

phi(u) = exp(-|u|^2/2) / sqrt(2m) [exp(omega_i.u), exp(-omega_i.u)]  for the softmax kernel
(Hybrid Random Features eq 3), so that the estimate is a mean of cosh(omega_i.(x+y)). Better than
2m positive features by the factor 1 - exp(-|x+y|^2) in mean squared error.
"""

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, component
from attention.features.base import LogFeatures, ScaledFeatures, scaled_exp
from attention.features.projected import ProjectedFeatures


class HyperbolicFeatures(ProjectedFeatures):
    """Hyperbolic features: F = 2m, positive."""

    functions_per_projection = 2
    compiled_as = "hyperbolic"
    terms = 2
    norm_exponent = -1.0

    def parts(self, projections: Tensor, log_weight: Tensor) -> tuple[Tensor, ...]:
        return (log_weight + projections).exp(), (log_weight - projections).exp()

    def write(self, out: Tensor, projections: Tensor, log_weight: Tensor) -> None:
        plus, minus = out.chunk(2, -2)
        torch.add(log_weight, projections, out=plus)
        torch.sub(log_weight, projections, out=minus)
        out.exp_()

    def log_size(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        return log_weight + projections.abs().amax(dim, keepdim=True)

    def evaluate_scaled(
        self, projections: Tensor, log_weight: Tensor, dim: int = -1
    ) -> ScaledFeatures:
        mantissa, log_scale = scaled_exp(torch.cat((projections, -projections), dim), dim)
        return ScaledFeatures(mantissa, log_weight + log_scale)

    def log_queries(self, x: Tensor) -> LogFeatures:
        projections, log_weight = self._project(x)
        with component(EXPONENTIALS):
            logarithms = torch.cat((projections, -projections), -1)
            return LogFeatures(logarithms, log_weight, own=True)
