"""The engineer's memory of places: cells along the path, shifted by odometry, with forgetting.

The cells lie on a circle and stay where they are; the robot moves over them. So shifting costs
nothing, and nothing is blurred by it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attention.components import component
from policies.place_memory.steps import SteppedPlaces

__all__ = ["GridState", "PlaceGrid"]

_LEAST = 1e-2  # of a pixel: what was written so long ago is as if it never was


class GridState(NamedTuple):
    """Of each cell, the weights of all pixels and of holes, (batch, cells)."""

    counts: Tensor
    holes: Tensor


class PlaceGrid(SteppedPlaces):
    """Shares of holes in cells on a circle of path.

    Args:
        circle_m: length of the circle, metres.
        cell_m: of a cell, metres; the circle is cut into the nearest whole number of them.
        forgetting: what a step leaves of what was written before it.
        axes: dimensions of places; with 2, where the path turns, they are (..., n, 2), and cells
            are squares on the torus of two such circles.
    """

    def __init__(self, circle_m: float, cell_m: float, forgetting: float, axes: int = 1) -> None:
        super().__init__()
        self.side = max(1, round(circle_m / cell_m))
        self.axes, self.cells = axes, self.side**axes
        self.cell_m, self.forgetting = circle_m / self.side, forgetting

    def start(self, batch: int, like: Tensor) -> GridState:
        """Nothing written yet."""
        return GridState(like.new_zeros(batch, self.cells), like.new_zeros(batch, self.cells))

    def cleared(self, state: GridState, where: Tensor) -> GridState:
        """Nothing written in those of the batch that are told, (batch,) bool."""
        return GridState(*(part.masked_fill(where.unsqueeze(-1), 0) for part in state))

    def write(self, state: GridState, at_m: Tensor, holes: Tensor, weights: Tensor) -> GridState:
        """A step: forget, then take in pixels at places, each (batch, pixels)."""
        with component("score"):
            cells = self._cell(at_m)
            return GridState(
                (self.forgetting * state.counts).scatter_add(1, cells, weights),
                (self.forgetting * state.holes).scatter_add(1, cells, weights * holes),
            )

    def read(self, state: GridState, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        with component("score"):
            cells = self._cell(at_m)
            counts, holes = state.counts.gather(1, cells), state.holes.gather(1, cells)
            return torch.where(counts > _LEAST, holes / counts.clamp_min(_LEAST), 0.0)

    def _cell(self, at_m: Tensor) -> Tensor:
        cells = (at_m / self.cell_m).floor().long() % self.side
        return cells if self.axes == 1 else cells[..., 0] * self.side + cells[..., 1]
