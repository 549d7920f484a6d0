"""Optimal positive random features, the map of FAVOR++.

f(u) = (1-4A)^(d/4) / sqrt(m) [exp(A|omega_i|^2 + sqrt(1-4A) omega_i.u - |u|^2/2)]  for the softmax
kernel, real A <= 0 (Chefs' Random Tables eq 4 with s = 1, Theorem 3.3, section 3.1). These are
positive features with scaled projections and a bias. A = 0 is FAVOR+; A < 0 makes features bounded,
and the optimal A for the data can reduce the variance by a factor of exp(60).
"""

from collections.abc import Sequence
from typing import Self, Unpack

import torch
from torch import Tensor

from attention.features.map_options import MapOptions
from attention.features.parameters import average, beside, given_parameter, holds, shape_parameter
from attention.features.positive import PositiveFeatures
from attention.features.vectors import sums_by_vector
from attention.theory.optimal import mean_square_of_sums, oprf_parameter


def oprf_affine(omega: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(1-4A) omega, and A|omega|^2 + (d/4) log(1-4A): (m,) or (heads, 1, m)."""
    bias = A * sums_by_vector(omega.square()) + omega.shape[-1] / 4 * (-4 * A).log1p()
    return (1 - 4 * A).sqrt() * omega, bias


class OprfFeatures(PositiveFeatures):
    """Optimal positive features: F = m, positive.

    Args:
        dim, num_features: d and m.
        A: a number or (heads,), at most 0. None is 0 until `fit` sets it; `fit` does not change a
            given A.
        options: options of every map, see `MapOptions`. Blocks of simplex or orthogonal vectors
            reduce the error as much as for positive features.

    Raises ValueError for an A above 0, complex, of another shape or not finite.
    """

    compiled_as = "positive"

    A: Tensor
    """() or (heads, 1, 1)"""

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        A: float | Sequence[float] | Tensor | None = None,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, **options)
        value = given_parameter("A", 0.0 if A is None else A, self.heads)
        if not holds(value <= 0):
            raise ValueError(f"A must be at most 0, got {A}")
        self._given = A is not None
        place = beside(self.omega, options.get("dtype"), options.get("device"))
        self.register_buffer("A", value.to(place))

    def affine(self, omega: Tensor) -> tuple[Tensor, Tensor | None]:
        return oprf_affine(omega, self.A.to(omega.dtype))

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set A, unless given, to the optimum for the mean of |x_i + y_j|^2, in O(Ld).

        x (..., Lx, d) and y (..., Ly, d); the mean is over tokens and leading dimensions,
        separately for each head. In causal attention this uses future tokens: fit on other data.

        Raises ValueError if the data has no tokens or is not finite.
        """
        x, y = self._data(x, y, self.A)
        if not self._given:
            square = average(mean_square_of_sums(x, y), self.heads)
            self.A.copy_(shape_parameter(oprf_parameter(square, self.dim), self.heads))
        return self
