"""Poisson features made positive by a shift: PoisRF+ of Chefs' Random Tables, section 3.2.3."""

import torch
from torch import Tensor

from attention.features.poisson import PoissonFeatures
from attention.features.shifted import MARGIN, Shifted


class PoissonPlusFeatures(Shifted, PoissonFeatures):
    """F = m, positive for tokens above the shift; below it features are signed, still unbiased.

    Args:
        shift: c, (d,) or (heads, d); otherwise 0 until `fit` sets it just below the data.
        margin: how far below the least entry `fit` sets c, in ranges of the data's coordinate.
        others: as in `PoissonFeatures`; `fit` looks at the shifted data.

    Raises ValueError for a shift of another shape or not finite, and a negative margin.
    """

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        kernel: str = "softmax",
        projection: str | Tensor = "orthogonal",
        lam: float | Tensor | None = None,
        shift: Tensor | None = None,
        margin: float = MARGIN,
        seed: int = 0,
        heads: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            dim,
            num_features,
            kernel=kernel,
            projection=projection,
            lam=lam,
            seed=seed,
            heads=heads,
            dtype=dtype,
            device=device,
        )
        self._register_shift(shift, margin)
