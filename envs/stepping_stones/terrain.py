"""The row of stepping stones: where they lie, and how safe a foothold on them is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.config import SteppingStonesConfig

STONE_THICKNESS_M = 0.10
FLOOR_M = -0.50
"""Height of the floor under the stones, whose tops are at 0, metres."""
START_M = -0.60
"""Where the row begins, metres."""

Floats = NDArray[np.float64]
Boxes = tuple[Floats, Floats, Floats | None]
"""Lower and upper corners (boxes, 3), metres, and how far the boxes are then turned to the left
about their centres (boxes,), radians; None: not at all."""


class Body(NamedTuple):
    """A box for the physics: half its sides and its centre (x, y, z), metres; its turn, radians."""

    half_m: tuple[float, float, float]
    centre_m: tuple[float, float, float]
    yaw_rad: float


@dataclass(frozen=True)
class Stones:
    """A row of stones along world x, their tops at height 0.

    Attributes:
        edges_m: (stones, 2) near and far edge of each stone, ascending, metres.
        width_m: their common width, centred on y = 0, metres.
    """

    edges_m: Floats
    width_m: float

    @property
    def low_m(self) -> Floats:
        """(stones, 3) lower corner of each stone, metres."""
        n = len(self.edges_m)
        y, z = np.full(n, -self.width_m / 2), np.full(n, -STONE_THICKNESS_M)
        return np.column_stack([self.edges_m[:, 0], y, z])

    @property
    def high_m(self) -> Floats:
        """(stones, 3) upper corner of each stone, metres."""
        n = len(self.edges_m)
        return np.column_stack([self.edges_m[:, 1], np.full(n, self.width_m / 2), np.zeros(n)])

    def bodies(self) -> Iterator[Body]:
        """Each stone for the physics."""
        for near, far in self.edges_m:
            half = ((far - near) / 2, self.width_m / 2, STONE_THICKNESS_M / 2)
            yield Body(half, ((near + far) / 2, 0.0, -STONE_THICKNESS_M / 2), 0.0)

    def margin_m(self, x_m: Floats) -> Floats:
        """Distance of points along the row to the nearest edge, positive on a stone, metres."""
        x = np.asarray(x_m)[..., None]
        inside: Floats = np.minimum(x - self.edges_m[:, 0], self.edges_m[:, 1] - x).max(-1)
        return inside

    def nearest_safe_m(self, x_m: Floats, margin_m: float) -> Floats:
        """The points nearest to `x_m` that lie at least `margin_m` inside a stone, metres."""
        x = np.asarray(x_m)[..., None]
        clipped = np.clip(x, self.edges_m[:, 0] + margin_m, self.edges_m[:, 1] - margin_m)
        nearest = np.abs(clipped - x).argmin(-1)
        safe: Floats = np.take_along_axis(clipped, nearest[..., None], -1)[..., 0]
        return safe


def draw_stones(
    config: SteppingStonesConfig, gap_m: tuple[float, float], rng: np.random.Generator
) -> Stones:
    """A random row, longer than the robot can walk in an episode."""
    edges = [(START_M, float(rng.uniform(*config.first_edge_m)))]
    while edges[-1][1] < config.row_end_m:
        near = edges[-1][1] + rng.uniform(*gap_m)
        edges.append((near, near + rng.uniform(*config.stone_length_m)))
    return Stones(np.array(edges), config.stone_width_m)
