"""Angular hybrid features, linearised: an O(L) map whose error vanishes at angles 0 and pi.

The coefficient is lambda = theta/pi, with theta the angle between x and y, estimated without bias
by L = 1/2 - (1/2n) sum_k sgn(tau_k.x) sgn(tau_k.y) (Hybrid Random Features, section 2.4). L is the
weight of S1, which is accurate at large angles (hyperbolic); 1 - L is the weight of S2, which is
accurate at small angles (trig). At angle 0 all signs agree and L = 0, where trig is exact; at pi L
= 1, where hyperbolic is. There trig's terms, of order exp(|x|^2), cancel: rounding leaves a
relative error of about the dtype's eps times exp(2 |x|^2).
"""

from typing import Unpack

import torch
from torch import Tensor

from attention.hybrid.bases import HybridOptions
from attention.hybrid.bipolar import BipolarHybrid
from attention.hybrid.coefficient import ProjectedCoefficient
from attention.tracing import is_exporting


class AngularCoefficient(ProjectedCoefficient):
    """The coefficient theta/pi, with estimates in {0, 1/n, ..., 1}. R = n.

    Signs have no gradient: the estimate's gradient treats the coefficient as constant.
    """

    @property
    def constant(self) -> float:
        return 0.5

    @property
    def factor(self) -> float:
        return -0.5 / self.num_features

    @property
    def width(self) -> int:
        return self.num_features

    def evaluate(self, projections: Tensor, half_square: Tensor, dim: int = -1) -> Tensor:
        """sgn(tau.u), with sgn(0) = 1."""
        drawn = projections.detach()
        if torch.compiler.is_compiling() and is_exporting():  # ONNX has no such operator
            return 1 - 2 * (drawn < 0).to(drawn.dtype)
        return torch.copysign(drawn.new_ones(()), drawn)


class AngularHybrid(BipolarHybrid):
    """Angular hybrid: F = (t1 + t2) m (n + 1), signed; t is 2 for hyperbolic and trig, 1 for
    positive and oprf.

    Args:
        dim, num_features: d and m.
        num_lambda_features: n, number of random vectors tau for the coefficient.
        options: options of every hybrid of two bases, see `HybridOptions`.
    """

    compiled_as = "signs"

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        num_lambda_features: int = 8,
        **options: Unpack[HybridOptions],
    ) -> None:
        heads = options.get("heads")
        coefficient = AngularCoefficient(dim, num_lambda_features, projection=None, heads=heads)
        super().__init__(dim, num_features, coefficient, **options)
