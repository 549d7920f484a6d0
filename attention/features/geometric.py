"""Geometric features: integers w_l with probabilities p (1-p)^w_l.

f(u) = p^(-d/2) exp(-|u|^2/2) / sqrt(m) [prod_l u_l^w_l (1-p)^(-w_l/2) / sqrt(w_l!)]  for the
Gaussian kernel (Chefs' Random Tables section 3.2.2).
"""

from typing import Unpack

from torch import Tensor

from attention.features.discrete import DiscreteFeatures
from attention.features.map_options import MapOptions
from attention.features.vectors import sums_by_vector
from attention.theory.optimal import geometric_parameter


class GeometricFeatures(DiscreteFeatures):
    """Geometric features: F = m, signed.

    Args:
        p: a number or (heads,) between 0 and 1; if not given, `fit` sets it.
        dim, num_features, options: as in `DiscreteFeatures`.
    """

    parameter_name = "p"

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        p: float | Tensor | None = None,
        **options: Unpack[MapOptions],
    ) -> None:
        super().__init__(dim, num_features, parameter=p, **options)

    def _check_parameter(self, value: Tensor) -> None:
        if not bool(((value > 0) & (value < 1)).all()):
            raise ValueError(f"p must be between 0 and 1, got {value.flatten().tolist()}")

    def _optimum(self, products: Tensor, square_products: Tensor) -> Tensor:
        return geometric_parameter(products)

    def _quantiles(self, uniform: Tensor, parameter: Tensor) -> Tensor:
        return ((-uniform).log1p() / (-parameter).log1p()).floor()

    def _log_normaliser(self, omega: Tensor, parameter: Tensor) -> Tensor:
        log_mass = self.dim * parameter.log() + sums_by_vector(omega) * (-parameter).log1p()
        return -0.5 * (log_mass + sums_by_vector((omega + 1).lgamma()))
