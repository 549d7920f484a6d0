"""Shift that makes discretely induced features positive, given or set from data."""

import math
from typing import Any, Self

import torch
from torch import Tensor

from attention.features.discrete import DiscreteFeatures
from attention.features.parameters import given_numbers, holds
from attention.options import is_real

MARGIN = 0.01
"""Small, since the error grows with the distance of the data from the shift."""


class Shifted(DiscreteFeatures):
    """A `DiscreteFeatures` of u - c (Chefs' Random Tables section 3.2.3).

    F = m, positive for tokens above c. Tokens below c, which can occur in data not seen by `fit`,
    give signed features: estimates stay unbiased and finite but may be negative, so the map counts
    as signed.

    Args:
        shift: c, (d,) or (heads, d). If not given, it is 0 until `fit` sets it just below the data.
        margin: distance of c below the least entry in `fit`, as a multiple of the coordinate's
            range.
        options: options of the map without a shift, whose parameter is fitted to the shifted data.

    Raises ValueError for a shift of another shape or not finite, and a margin that is
    negative or not finite.
    """

    general = True
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
            raise ValueError("shift must be finite, got a non-finite entry")
        if heads is not None:
            shift = shift.expand(heads, dim).unsqueeze(-2)
        self.register_buffer("shift", shift.to(self.parameter, copy=True))

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Set the shift and then the parameter from the data, unless given, in O(Ld).

        c_l is the least entry over queries x (..., Lx, d) and keys y (..., Ly, d), minus `margin`
        times the range, separately for each head. The parameter is the optimum for averages of x -
        c and y - c. In causal attention this uses future tokens: fit on other data.

        Raises ValueError if the data has no tokens or is not finite.
        """
        prepared = self._data(x, y, self.parameter)
        if not self._shift_given:
            tokens = torch.cat([_by_coordinate(u, self.heads) for u in prepared])
            least, largest = tokens.amin(0), tokens.amax(0)
            self.shift.copy_((least - self.margin * (largest - least)).reshape(self.shift.shape))
        return super().fit(x, y)


def _by_coordinate(u: Tensor, heads: int | None) -> Tensor:
    """Flatten tokens (..., L, d) to (N, d), or (..., heads, L, d) to (N, heads, d)."""
    return u.flatten(0, -2) if heads is None else u.movedim(-3, -2).flatten(0, -3)
