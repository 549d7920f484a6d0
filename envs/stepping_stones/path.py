"""The path of the stones: straight ahead, or half circles to alternating sides.

A half circle to the left is followed by one to the right, as a road climbs a slope: however long
the path, it never meets itself. World frame; arc lengths from the robot's start, metres.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STRAIGHT_M = 0.35  # before the first half circle begins: about the first stone


@dataclass(frozen=True)
class Place:
    """Position of a point relative to a path.

    Attributes:
        along_m: arc length of the path's nearest point.
        aside_m: distance from it, positive to the left.
        heading_rad: direction of the path there, in [-pi, pi].
    """

    along_m: float
    aside_m: float
    heading_rad: float


@dataclass(frozen=True)
class Path:
    """A path from the origin along x.

    Attributes:
        curvature_per_m: of the first half circle, 1 / radius, positive to the left; 0: straight on.
    """

    curvature_per_m: float = 0.0

    def at(self, along_m: Floats | float) -> tuple[Floats, Floats]:
        """Points (..., 2) and headings (...), radians, at arc lengths (...)."""
        along = np.asarray(along_m, float)
        if self.curvature_per_m == 0:
            return np.stack([along, np.zeros_like(along)], -1), np.zeros_like(along)
        radius, side = self._radius_m, self._side
        turned = np.maximum(along - _STRAIGHT_M, 0.0) / radius  # radians, of all half circles
        lap = np.floor(turned / np.pi)
        rest, way = turned - lap * np.pi, 1 - 2 * (lap % 2)
        x = np.minimum(along, _STRAIGHT_M) + way * radius * np.sin(rest)
        y = side * radius * (2 * lap + 1 - np.cos(rest))
        heading = side * np.where(way > 0, rest, np.pi - rest)
        return np.stack([x, y], -1), heading

    def curvature_at(self, along_m: float) -> float:
        """Curvature at an arc length, 1 / metres, positive to the left."""
        if along_m <= _STRAIGHT_M or self.curvature_per_m == 0:
            return 0.0
        lap = int((along_m - _STRAIGHT_M) / (np.pi * self._radius_m))
        return self.curvature_per_m * (1 - 2 * (lap % 2))

    def place(self, point_m: Floats) -> Place:
        """Return the position of a point (2,) relative to the path near it."""
        x, y = (float(part) for part in point_m[:2])
        if self.curvature_per_m == 0:
            return Place(x, y, 0.0)
        radius, side = self._radius_m, self._side
        ahead, up = x - _STRAIGHT_M, side * y
        lap = max(int(np.floor(up / (2 * radius))), 0)
        if ahead * (1 - 2 * (lap % 2)) < 0:  # beside the half circle before or after
            lap += 1 if up > radius * (2 * lap + 1) else -1
        if lap < 0:
            return Place(x, y, 0.0)
        way = 1 - 2 * (lap % 2)
        out, down = way * ahead, radius * (2 * lap + 1) - up
        turned = float(np.arctan2(out, down))
        return Place(
            along_m=_STRAIGHT_M + (lap * np.pi + turned) * radius,
            aside_m=side * way * (radius - float(np.hypot(out, down))),
            heading_rad=side * (turned if way > 0 else np.pi - turned),
        )

    @property
    def _radius_m(self) -> float:
        return 1 / abs(self.curvature_per_m)

    @property
    def _side(self) -> float:
        return float(np.sign(self.curvature_per_m))
