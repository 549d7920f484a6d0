"""Maps that are an element-wise function of random projections omega.u and of |u|^2."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from attention.components import EXPONENTIALS, PROJECTION, component
from attention.features.base import FeatureMap, ScaledFeatures
from attention.projections import projection as draw_projection
from attention.projections import resolve_projection


class ProjectedFeatures(FeatureMap):
    """phi(u) = exp(a |u|^2/2) / sqrt(terms m) [f_1(omega.u), ..., f_t(omega.u)].

    A subclass gives the four class constants and two functions below. They are functions of
    projections and not of u, so that a hybrid can share one matrix product among its bases.

    Args:
        dim, num_features, kernel: as in `FeatureMap`.
        projection: name of a coupling, or an explicit tensor (m, d).
        seed: seeds the module's own generator.
        dtype, device: of the omegas; default PyTorch's.
    """

    functions_per_projection: ClassVar[int]
    """t: F = t m"""
    terms: ClassVar[int]
    """The estimate is a mean over terms * m products."""
    norm_exponent: ClassVar[float]
    """a, for the softmax kernel; the Gaussian kernel has a - 1."""

    omega: Tensor
    """(m, d)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor = "orthogonal",
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(dim, num_features, kernel=kernel)
        self.projection = projection if isinstance(projection, str) else "explicit"
        generator = torch.Generator().manual_seed(seed)
        omega = resolve_projection(
            "projection", projection, num_features, dim, generator, dtype, device
        )
        self.register_buffer("omega", omega)

    @staticmethod
    def evaluate(projections: Tensor, log_weight: Tensor, dim: int = -1) -> Tensor:
        """The features exp(log_weight) [f_1(p), ..., f_t(p)], joined along `dim`.

        projections has m entries along `dim`; log_weight has one there, and broadcasts.
        """
        raise NotImplementedError

    @staticmethod
    def evaluate_scaled(projections: Tensor, log_weight: Tensor, dim: int = -1) -> ScaledFeatures:
        """The same features with mantissas of at most 1 in absolute value."""
        raise NotImplementedError

    @classmethod
    def log_weight(cls, half_square: Tensor, m: int, kernel: str, share: float = 1.0) -> Tensor:
        """log of sqrt(share) exp(a |u|^2/2) / sqrt(terms m); half_square is |u|^2 / 2.

        `share` is the part of the estimate that a hybrid gives to this base.
        """
        exponent = cls.norm_exponent - (1.0 if kernel == "gaussian" else 0.0)
        return exponent * half_square + 0.5 * math.log(share / (cls.terms * m))

    @property
    def output_dim(self) -> int:
        return self.functions_per_projection * self.num_features

    def queries(self, x: Tensor) -> Tensor:
        projections, log_weight = self._project(x)
        with component(EXPONENTIALS):
            return self.evaluate(projections, log_weight)

    def scaled_queries(self, x: Tensor) -> ScaledFeatures:
        projections, log_weight = self._project(x)
        with component(EXPONENTIALS):
            return self.evaluate_scaled(projections, log_weight)

    def redraw(self, generator: torch.Generator) -> None:
        if self.projection == "explicit":
            raise ValueError(
                "redraw needs a projection given by name; this map was given an explicit tensor"
            )
        self.omega.copy_(
            draw_projection(
                self.projection,
                self.num_features,
                self.dim,
                generator,
                self.omega.dtype,
                self.omega.device,
            )
        )

    def _project(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """(..., d) -> omega.u (..., m) and the log-weight (..., 1)."""
        omega = self.omega
        self._check_input("queries and keys", u, omega)
        with component(PROJECTION):
            projections = u @ omega.mT
            half_square = 0.5 * u.square().sum(-1, keepdim=True)
            return projections, self.log_weight(half_square, self.num_features, self.kernel)
