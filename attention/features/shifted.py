"""The shift that makes discretely induced features positive, fixed or found from data."""

import math
from typing import Any, Self

import torch
from torch import Tensor

from attention.features.discrete import DiscreteFeatures
from attention.features.parameters import given_numbers, holds
from attention.options import is_real

MARGIN = 0.01
"""Small: the error grows with the distance of the data from the shift."""


class Shifted(DiscreteFeatures):
    """A `DiscreteFeatures` of u - c (Chefs' Random Tables section 3.2.3).

    F = m, positive for tokens above c. Tokens below it, which data that `fit` did not see may hold,
    give signed features: estimates stay unbiased and finite, but may be negative, so the map counts
    as signed.

    Args:
        shift: c, (d,) or (heads, d); otherwise 0 until `fit` sets it just below the data.
        margin: how far below the least entry `fit` sets c, in ranges of the data's coordinate.
        options: those of the map without a shift; its parameter is fitted to the shifted data.

    Raises ValueError for a shift of another shape or not finite, and a margin that is
    negative or not finite.
    """

    shift: Tensor

    def __init__(
        self,
        dim: int,
        num_features: int,
        *,
        shift: Tensor | None = None,
        margin: float = MARGIN,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dim, num_features, device=device, **options)
        if not is_real(margin) or not 0 <= margin < math.inf:
            raise ValueError(f"margin must be a finite number of at least 0, got {margin!r}")
        heads = self.heads
        self.margin = margin
        self._shift_given = shift is not None
        if shift is None:
            shift = torch.zeros((dim,) if heads is None else (heads, dim), device="cpu")
        shift = given_numbers("shift", shift)
        if shift.shape not in ((dim,), (heads, dim)):
            allowed = f"({dim},)" if heads is None else f"({dim},) or ({heads}, {dim})"
            raise ValueError(
                f"shift must have shape {allowed}, got a tensor of shape {tuple(shift.shape)}"
            )
        if not holds(shift.isfinite()):
            raise ValueError("shift must be finite, got an entry that is not")
        if heads is not None:
            shift = shift.expand(heads, dim).unsqueeze(-2)
        self.register_buffer("shift", shift.to(self.parameter, copy=True))

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set the shift, then the parameter, unless given, from the data, in O(Ld).

        c_l is the least entry over queries x (..., Lx, d) and keys y (..., Ly, d), less `margin`
        times the range, for each head alone; the parameter is the best for averages of x - c and
        y - c. In causal attention this looks at tokens to come: fit on other data.

        Raises ValueError for data without tokens or with entries that are not finite.
        """
        prepared = self._data(x, y, self.parameter)
        if not self._shift_given:
            tokens = torch.cat([_by_coordinate(u, self.heads) for u in prepared])
            least, largest = tokens.amin(0), tokens.amax(0)
            self.shift.copy_((least - self.margin * (largest - least)).reshape(self.shift.shape))
        return super().fit(x, y)


def _by_coordinate(u: Tensor, heads: int | None) -> Tensor:
    """All tokens (..., L, d) as (N, d), or (..., heads, L, d) as (N, heads, d)."""
    return u.flatten(0, -2) if heads is None else u.movedim(-3, -2).flatten(0, -3)
