"""Gaussian hybrid features: the coefficient grows with |x - y| instead of with the angle.

lambda = (1 - exp(-sigma^2 |x-y|^2 / 2)) / rho, rho = 1 - exp(-2 sigma^2 r^2), is 0 at x = y and 1
at x = -y for |x| = |y| = r (Hybrid Random Features eq 67 to 70, with the sigma that eq 70 leaves
out). The Gaussian inside is estimated with taus, by sines and cosines, exact at x = y, or by
positive features, exact at x = -y: so the hybrid's error is zero at angle 0 or at angle pi, not at
both. Estimates of lambda can leave [0, 1]; the hybrid is unbiased for every r.
"""

from typing import Self

import torch
from torch import Tensor

from attention.features.parameters import average, beside
from attention.hybrid.bases import Projection
from attention.hybrid.bipolar import BipolarHybrid
from attention.hybrid.coefficient import ProjectedCoefficient
from attention.options import check_positive
from attention.theory.gaussian import LAMBDA_FEATURES


def check_lambda_features(name: str) -> None:
    """Raise ValueError unless `name` is a way to estimate a Gaussian coefficient."""
    if name not in LAMBDA_FEATURES:
        known = ", ".join(LAMBDA_FEATURES)
        raise ValueError(f"lambda_features must be one of {known}, got {name!r}")


class BipolarGaussianCoefficient(ProjectedCoefficient):
    """(1 - exp(-sigma^2 |x-y|^2 / 2)) / (1 - exp(-2 sigma^2 r^2)). R = 2n for trig, n for positive.

    Args:
        dim, num_features, projection, seed, heads, dtype, device: as in `ProjectedCoefficient`.
        sigma: the paper's sigma; a larger one makes lambda rise faster with |x - y|.
        radius: r, common length of queries and keys; `fit` sets it.
        lambda_features: "trig" (exact at x = y) or "positive" (exact at x = -y).
    """

    radius: Tensor
    """(), or (heads,)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        sigma: float = 1.0,
        radius: float = 1.0,
        lambda_features: str = "trig",
        projection: str | Tensor | None = "orthogonal",
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            dim,
            num_features,
            projection=projection,
            seed=seed,
            heads=heads,
            dtype=dtype,
            device=device,
        )
        check_positive(lambda_sigma=sigma, radius=radius)
        check_lambda_features(lambda_features)
        self.sigma = sigma
        self.lambda_features = lambda_features
        shape = () if heads is None else (heads,)
        self.register_buffer("radius", beside(self.tau, dtype, device).new_full(shape, radius))

    @property
    def constant(self) -> Tensor:
        """1 / rho: (), or (heads, 1, 1)."""
        inverse = -1 / torch.expm1(-2 * self.sigma**2 * self.radius.square())
        return inverse if self.heads is None else inverse.reshape(-1, 1, 1)

    @property
    def factor(self) -> Tensor:
        return -self.constant / self.num_features

    @property
    def width(self) -> int:
        return (2 if self.lambda_features == "trig" else 1) * self.num_features

    def evaluate(self, projections: Tensor, half_square: Tensor, dim: int = -1) -> Tensor:
        """[sin, cos](sigma tau.u), or exp(sigma tau.u - sigma^2 |u|^2)."""
        scaled = self.sigma * projections
        if self.lambda_features == "trig":
            return torch.cat((scaled.sin(), scaled.cos()), dim)
        return (scaled - 2 * self.sigma**2 * half_square).exp()

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """r = mean length of queries x and keys y (..., d), for each head.

        Raises ValueError where all are zero.
        """
        lengths = [torch.linalg.vector_norm(u.detach().to(self.radius), dim=-1) for u in (x, y)]
        of_queries, of_keys = (average(length.mean(-1), self.heads) for length in lengths)
        radius = 0.5 * (of_queries + of_keys)
        if not bool((radius > 0).all()):
            raise ValueError("fit needs queries and keys of mean length above 0, got 0")
        self.radius.copy_(radius)
        return self


class GaussianHybrid(BipolarHybrid):
    """F = (t1 + t2) m (R + 1), signed; R = 2n, or n for positive lambda features.

    Args:
        dim, num_features, kernel, projection, seed, lambda_projection, shared_projections, base,
            heads, dtype, device: as in `BipolarHybrid`.
        num_lambda_features: n, number of random vectors tau for the coefficient.
        lambda_sigma, radius, lambda_features: `sigma`, `radius` and `lambda_features` of
            `BipolarGaussianCoefficient`.
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
        lambda_sigma: float = 1.0,
        radius: float = 1.0,
        lambda_features: str = "trig",
        lambda_projection: str | Tensor | None = None,
        shared_projections: bool = True,
        base: tuple[str, str] = ("hyperbolic", "trig"),
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        # In float64 until the hybrid casts it: rounded to float32, a radius would stay rounded.
        coefficient = BipolarGaussianCoefficient(
            dim,
            num_lambda_features,
            sigma=lambda_sigma,
            radius=radius,
            lambda_features=lambda_features,
            projection=None,
            heads=heads,
            dtype=torch.float64,
        )
        super().__init__(
            dim,
            num_features,
            coefficient,
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
