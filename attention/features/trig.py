"""Trigonometric features: sin/cos pairs.

phi(u) = exp(|u|^2/2) / sqrt(m) [sin(omega_i.u), cos(omega_i.u)]  for the softmax kernel
(Hybrid Random Features eq 2; for the Gaussian kernel, where the exponential is absent, the map phi
of On the Error of Random Fourier Features). Exact at x = y; relative error explodes as the kernel
goes to 0, and estimates can be negative.
"""

import torch
from torch import Tensor

from attention.features.base import ScaledFeatures
from attention.features.projected import ProjectedFeatures


class TrigFeatures(ProjectedFeatures):
    """Trigonometric features: F = 2m, signed."""

    signed = True
    functions_per_projection = 2
    compiled_as = "trig"
    norm_exponent = 1.0

    def parts(self, projections: Tensor, log_weight: Tensor) -> tuple[Tensor, ...]:
        weight = log_weight.exp()
        return projections.sin() * weight, projections.cos() * weight

    def write(self, out: Tensor, projections: Tensor, log_weight: Tensor) -> None:
        sines, cosines = out.chunk(2, -2)
        torch.sin(projections, out=sines)
        torch.cos(projections, out=cosines)
        out.mul_(log_weight.exp())

    def log_size(self, projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        return log_weight

    def evaluate_scaled(
        self, projections: Tensor, log_weight: Tensor, dim: int = -1
    ) -> ScaledFeatures:
        return ScaledFeatures(torch.cat((projections.sin(), projections.cos()), dim), log_weight)
