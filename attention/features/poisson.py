"""Poisson features: integers w_l ~ Poisson(lam).

f(u) = exp(lam d/2 - |u|^2/2) / sqrt(m) [prod_l u_l^w_l lam^(-w_l/2)]  for the Gaussian kernel
(Chefs' Random Tables section 3.2.1; the factorials cancel).
"""

from typing import Unpack

import torch
from torch import Tensor

from attention.features.discrete import DiscreteFeatures
from attention.features.map_options import MapOptions
from attention.features.vectors import sums_by_vector
from attention.theory.optimal import poisson_parameter


class PoissonFeatures(DiscreteFeatures):
    """Poisson features: F = m, signed.

    Args:
        lam: positive rate, a number or (heads,); if not given, `fit` sets it.
        dim, num_features, options: as in `DiscreteFeatures`.
    """

    parameter_name = "lam"

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        lam: float | Tensor | None = None,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, parameter=lam, **options)

    def _check_parameter(self, value: Tensor) -> None:
        if not bool((value > 0).all()):
            raise ValueError(f"lam must be positive, got {value.min().item():g}")

    def _optimum(self, products: Tensor, square_products: Tensor) -> Tensor:
        return poisson_parameter(square_products)

    def _quantiles(self, uniform: Tensor, parameter: Tensor) -> Tensor:
        # The mass outside 12 standard deviations plus 40 is below the precision of float64.
        reach = 12 * parameter.sqrt() + 40
        first = int((parameter - reach).clamp(min=0))
        k = torch.arange(first, int(parameter + reach) + 1, dtype=torch.float64)
        mass = (k * parameter.log() - parameter - (k + 1).lgamma()).exp()
        below = torch.searchsorted(mass.cumsum(0), uniform.contiguous(), right=True)
        return first + below.clamp(max=len(k) - 1)

    def _log_normaliser(self, omega: Tensor, parameter: Tensor) -> Tensor:
        return 0.5 * (self.dim * parameter - sums_by_vector(omega) * parameter.log())
