"""Gaussian hybrid features: the coefficient grows with |x - y| instead of with the angle.

lambda = (1 - exp(-sigma^2 |x-y|^2 / 2)) / rho, rho = 1 - exp(-2 sigma^2 r^2), is 0 at x = y and 1
at x = -y for |x| = |y| = r (Hybrid Random Features eq 67 to 70, with the sigma that eq 70 leaves
out). The Gaussian in it is estimated with taus, either by sines and cosines, exact at x = y, or by
positive features, exact at x = -y. The error of the hybrid is therefore zero at angle 0 or at angle
pi, but not at both. Estimates of lambda can leave [0, 1]; the hybrid is unbiased for every r.
"""

from typing import Self, Unpack

import torch
from torch import Tensor

from attention.features.map_options import VectorOptions
from attention.features.parameters import average, beside
from attention.hybrid.bases import HybridOptions
from attention.hybrid.bipolar import BipolarHybrid
from attention.hybrid.coefficient import ProjectedCoefficient
from attention.options import check_positive
from attention.theory.gaussian import LAMBDA_FEATURES


def check_lambda_features(name: str) -> None:
    """Raise ValueError unless `name` is the name of lambda features."""
    if name not in LAMBDA_FEATURES:
        known = ", ".join(LAMBDA_FEATURES)
        raise ValueError(f"lambda_features must be one of {known}, got {name!r}")


def inverse_normaliser(sigma: float, radius: Tensor) -> Tensor:
    """Return 1 / rho for r () or (heads,): (), or (heads, 1, 1)."""
    inverse = -1 / torch.expm1(-2 * sigma**2 * radius.square())
    return inverse if inverse.ndim == 0 else inverse.reshape(-1, 1, 1)


def mean_length(x: Tensor, y: Tensor, like: Tensor, heads: int | None) -> Tensor:
    """Return the mean length of queries x and keys y (..., d), with equal weight: () or (heads,),
    in the dtype of `like`.

    Raises ValueError if all are zero.
    """
    lengths = [torch.linalg.vector_norm(u.detach().to(like), dim=-1) for u in (x, y)]
    of_queries, of_keys = (average(length.mean(-1), heads) for length in lengths)
    radius = 0.5 * (of_queries + of_keys)
    if not bool((radius > 0).all()):
        raise ValueError("fit needs queries and keys of mean length above 0, got 0")
    return radius


class BipolarGaussianCoefficient(ProjectedCoefficient):
    """The coefficient (1 - exp(-sigma^2 |x-y|^2 / 2)) / (1 - exp(-2 sigma^2 r^2)). R = 2n for trig,
    n for positive.

    Args:
        dim, num_features: d and n.
        sigma: the paper's sigma; a larger one makes lambda rise faster with |x - y|.
        radius: r, the common length of queries and keys; `fit` sets it.
        lambda_features: "trig" (exact at x = y) or "positive" (exact at x = -y).
        options: options of the taus, `VectorOptions`, as in `ProjectedCoefficient`.
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
        **options: Unpack[VectorOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        check_positive(lambda_sigma=sigma, radius=radius)
        check_lambda_features(lambda_features)
        self.sigma = sigma
        self.lambda_features = lambda_features
        shape = () if self.heads is None else (self.heads,)
        place = beside(self.tau, options.get("dtype"), options.get("device"))
        self.register_buffer("radius", place.new_full(shape, radius))

    @property
    def constant(self) -> Tensor:
        """1 / rho: (), or (heads, 1, 1)."""
        return inverse_normaliser(self.sigma, self.radius)

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
        """Set r to the mean length of queries x and keys y (..., d), per head.

        Raises ValueError if all are zero.
        """
        self.radius.copy_(mean_length(x, y, self.radius, self.heads))
        return self


class GaussianHybrid(BipolarHybrid):
    """Gaussian hybrid: F = (t1 + t2) m (R + 1), signed; R = 2n, or n for positive lambda features.

    Args:
        dim, num_features: d and m.
        num_lambda_features: n, number of random vectors tau for the coefficient.
        lambda_sigma, radius, lambda_features: `sigma`, `radius` and `lambda_features` of
            `BipolarGaussianCoefficient`.
        options: options of every hybrid of two bases, see `HybridOptions`.
    """

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        num_lambda_features: int = 8,
        lambda_sigma: float = 1.0,
        radius: float = 1.0,
        lambda_features: str = "trig",
        **options: Unpack[HybridOptions],
    ) -> None:
        # In float64 until the hybrid casts it, since rounding to float32 would be permanent.
        coefficient = BipolarGaussianCoefficient(
            dim,
            num_lambda_features,
            sigma=lambda_sigma,
            radius=radius,
            lambda_features=lambda_features,
            projection=None,
            heads=options.get("heads"),
            dtype=torch.float64,
        )
        super().__init__(dim, num_features, coefficient, **options)
