"""Angular hybrid features, linearised: an O(L) map whose error vanishes at angles 0 and pi.

The coefficient is lambda = theta/pi, with theta the angle between x and y, estimated without bias
by L = 1/2 - (1/2n) sum_k sgn(tau_k.x) sgn(tau_k.y) (Hybrid Random Features, section 2.4). It
weights S1, which is good at large angles (hyperbolic); 1 - L weights S2, good at small ones (trig).
At angle 0 all signs agree and L = 0, where trig is exact; at pi L = 1, where hyperbolic is. There
trig's terms, of order exp(|x|^2), cancel: rounding leaves a relative error of about the dtype's eps
times exp(2 |x|^2).
"""

import torch
from torch import Tensor

from attention.hybrid.bases import Projection
from attention.hybrid.bipolar import BipolarHybrid
from attention.hybrid.coefficient import ProjectedCoefficient


class AngularCoefficient(ProjectedCoefficient):
    """theta/pi; estimates are in {0, 1/n, ..., 1}. R = n.

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
        return torch.copysign(projections.new_ones(()), projections.detach())


class AngularHybrid(BipolarHybrid):
    """F = (t1 + t2) m (n + 1), signed; t is 2 for hyperbolic and trig, 1 for positive and oprf.

    Args:
        dim, num_features, kernel, projection, seed, lambda_projection, base, heads, dtype, device:
            as in `BipolarHybrid`.
        num_lambda_features: n, number of random vectors tau for the coefficient.
        shared_projections: both bases use the same omegas: fewer operations, and never a larger
            error for hyperbolic and trig (Theorem 3.1).
    """

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: Projection = "orthogonal",
        seed: int = 0,
        num_lambda_features: int = 8,
        lambda_projection: str | Tensor | None = None,
        shared_projections: bool = True,
        base: tuple[str, str] = ("hyperbolic", "trig"),
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            dim,
            num_features,
            AngularCoefficient(dim, num_lambda_features, projection=None, heads=heads),
            kernel=kernel,
            projection=projection,
            seed=seed,
            lambda_projection=lambda_projection,
            shared_projections=shared_projections,
            base=base,
            heads=heads,
            dtype=dtype,
            device=device,
        )
