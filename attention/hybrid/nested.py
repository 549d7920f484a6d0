"""Nested hybrids: the bipolar Gaussian coefficient estimated by any map of the Gaussian kernel.

lambda = (1 - exp(-sigma^2 |x-y|^2 / 2)) / rho, as in `attention.hybrid.gaussian`. Trigonometric
features estimate the Gaussian without error at x = y, positive ones at x = -y. An angular hybrid is
exact at both, so the error of the outer hybrid vanishes at both ends (Hybrid Random Features,
appendix F). A nested hybrid is a `HybridFeatures` with this coefficient; its map may itself be
nested.
"""

from typing import Self

import torch
from torch import Tensor

from attention.features import FeatureMap
from attention.hybrid.coefficient import Coefficient
from attention.hybrid.gaussian import inverse_normaliser, mean_length
from attention.options import check_positive
from attention.precision import working_dtype


class NestedCoefficient(Coefficient):
    """The coefficient (1 - exp(-sigma^2 |x-y|^2 / 2)) / (1 - exp(-2 sigma^2 r^2)). R = F of the
    map.

    Args:
        features: map of the Gaussian kernel, whose random vectors must be independent of those of
            the bases, for example by another seed.
        sigma: a larger one makes lambda rise faster with |x - y|.
        radius: r, the common length of queries and keys; `fit` sets it.

    Raises ValueError for a map of another kernel or a sigma or radius that is not positive.
    """

    radius: Tensor
    """(), or (heads,)"""

    def __init__(self, features: FeatureMap, *, sigma: float = 1.0, radius: float = 1.0) -> None:
        super().__init__()
        check_positive(sigma=sigma, radius=radius)
        if features.kernel != "gaussian":
            raise ValueError(
                "features must be a map with kernel='gaussian', which the coefficient needs, "
                f"got kernel={features.kernel!r}"
            )
        self.features = features
        self.sigma = sigma
        shape = () if features.heads is None else (features.heads,)
        # Discrete maps also have integer buffers.
        floats = (buffer for buffer in features.buffers() if buffer.is_floating_point())
        place = next(floats, torch.empty(0))
        self.register_buffer("radius", place.new_full(shape, radius))

    @property
    def constant(self) -> Tensor:
        """1 / rho: (), or (heads, 1, 1)."""
        return inverse_normaliser(self.sigma, self.radius)

    @property
    def width(self) -> int:
        return self.features.output_dim

    def queries(self, x: Tensor) -> Tensor:
        return self.features.queries(self.sigma * x.to(working_dtype(x.dtype)))

    def keys(self, y: Tensor) -> Tensor:
        rho = self.features.keys(self.sigma * y.to(working_dtype(y.dtype)))
        return -self.constant.to(rho) * rho

    def redraw(self, generator: torch.Generator) -> None:
        self.features.redraw(generator)

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Fit the map to sigma x and sigma y, and r to the mean length of x and y (..., d).

        Raises ValueError if all are zero.
        """
        self.radius.copy_(mean_length(x, y, self.radius, self.features.heads))
        self.features.fit(self.sigma * x, self.sigma * y)
        return self
