"""Stones of boxes that are turned about the vertical: along a path that turns, or of irregular
outline along a straight one; and footholds on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.path import Path
from envs.stepping_stones.terrain import STONE_THICKNESS_M, Body, Boxes, draw_stones

Floats = NDArray[np.float64]

_OUTER_LEG_M = 0.115  # from the path's middle to a leg's track: a gap is measured there
_SHORTEST_GAP_M = 0.02
_LESSER_SIDE = 0.8  # of an irregular stone's two rectangles, the one's width, the other's length


@dataclass(frozen=True)
class TurnedStones:
    """Stones along a path, their tops at height 0. One of irregular outline is two that overlap.

    Attributes:
        edges_m: (stones, 2) arc lengths of each stone's near and far edge, ascending.
        width_m: their common width across the path.
        centre_m: (stones, 2) world.
        yaw_rad: (stones,) their turn to the left.
        half_m: (stones, 2) half their length and width.
    """

    edges_m: Floats
    width_m: float
    centre_m: Floats
    yaw_rad: Floats
    half_m: Floats

    @property
    def low_m(self) -> Floats:
        """(stones, 3) lower corner of each stone before it is turned about its centre, metres."""
        below = np.full(len(self.yaw_rad), -STONE_THICKNESS_M)
        return np.column_stack([self.centre_m - self.half_m, below])

    @property
    def high_m(self) -> Floats:
        """(stones, 3) upper corner of each stone before it is turned, metres."""
        return np.column_stack([self.centre_m + self.half_m, np.zeros(len(self.yaw_rad))])

    def bodies(self) -> Iterator[Body]:
        """Each stone for the physics."""
        for (x, y), yaw, (length, width) in zip(
            self.centre_m, self.yaw_rad, self.half_m, strict=True
        ):
            half = (length, width, STONE_THICKNESS_M / 2)
            yield Body(half, (x, y, -STONE_THICKNESS_M / 2), float(yaw))

    def near(self, point_m: Floats, radius_m: float) -> "TurnedStones":
        """The nearest stone, and those that may lie partly within a radius of a point (2,)."""
        away = np.hypot(*(self.centre_m - point_m).T)
        close = away < radius_m + np.hypot(*self.half_m.T)
        close[away.argmin()] = True
        return TurnedStones(
            self.edges_m[close],
            self.width_m,
            self.centre_m[close],
            self.yaw_rad[close],
            self.half_m[close],
        )

    def margin_m(self, points_m: Floats) -> Floats:
        """Distance of points (..., 2) to the nearest edge, positive on a stone, metres; off every
        stone the larger of the distances ahead and aside, negative. Where stones overlap, that to
        the edge of one of them."""
        inside: Floats = (self.half_m - np.abs(self._local(points_m))).min(-1).max(-1)
        return inside

    def nearest_safe_m(self, points_m: Floats, margin_m: float) -> Floats:
        """The points (..., 2) nearest to `points_m` at least `margin_m` inside a stone."""
        local = self._local(points_m)
        clipped = np.clip(local, margin_m - self.half_m, self.half_m - margin_m)
        nearest = np.linalg.norm(clipped - local, axis=-1).argmin(-1)
        x, y = np.take_along_axis(clipped, nearest[..., None, None], -2)[..., 0, :].T
        cos, sin = np.cos(self.yaw_rad[nearest]).T, np.sin(self.yaw_rad[nearest]).T
        safe: Floats = self.centre_m[nearest] + np.stack([cos * x - sin * y, sin * x + cos * y]).T
        return safe

    def _local(self, points_m: Floats) -> Floats:
        """Points (..., 2) in each stone's frame, (..., stones, 2)."""
        x, y = np.moveaxis(np.asarray(points_m)[..., None, :] - self.centre_m, -1, 0)
        cos, sin = np.cos(self.yaw_rad), np.sin(self.yaw_rad)
        return np.stack([cos * x + sin * y, cos * y - sin * x], -1)


def near_boxes(boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
    """The turned boxes that may lie partly within reach of the base, behind and ahead of it."""
    low, high, yaw = boxes
    assert yaw is not None
    away = np.hypot(*((low + high)[:, :2] / 2 - position_m[:2]).T)
    near = away < max(reach_m) + np.hypot(*(high - low)[:, :2].T) / 2
    return low[near], high[near], yaw[near]


def lay_irregular_stones(
    config: SteppingStonesConfig, gap_m: tuple[float, float], rng: np.random.Generator
) -> TurnedStones:
    """The stones of the straight row, to the sides of the path and of irregular outline, except for
    the first, on which the robot starts.

    With `stone_turn_deg` each stone is two rectangles, as long as drawn and narrower, and as wide
    and shorter.
    """
    row = draw_stones(config, gap_m, rng).edges_m
    own = rng.spawn(1)[0]
    aside, *turns = own.uniform(-1, 1, (3, len(row)))
    aside[0], length = 0.0, row[:, 1] - row[:, 0]
    half = np.column_stack([length / 2, np.full(len(row), config.stone_width_m / 2)])
    lesser = [(1.0, _LESSER_SIDE), (_LESSER_SIDE, 1.0)] if config.stone_turn_deg else [(1.0, 1.0)]
    sizes = np.stack([half * sides for sides in lesser], 1)
    yaw = np.radians(config.stone_turn_deg) * np.stack(turns[: len(lesser)], 1)
    sizes[0], yaw[0] = half[0], 0.0
    centre = np.column_stack([row.mean(1), config.stone_aside_m * aside])
    return TurnedStones(
        edges_m=row.repeat(len(lesser), 0),
        width_m=config.stone_width_m,
        centre_m=centre.repeat(len(lesser), 0),
        yaw_rad=yaw.ravel(),
        half_m=sizes.reshape(-1, 2),
    )


def lay_stones(
    config: SteppingStonesConfig, gap_m: tuple[float, float], path: Path, rng: np.random.Generator
) -> TurnedStones:
    """The stones of the straight row along a path, longer than the robot can walk in an episode.

    A gap is as wide as drawn at the outer leg, where it is widest; in the middle it is narrower.
    A stone's middle lies half-way between its chord and the arc.
    """
    row = draw_stones(config, gap_m, rng).edges_m
    edges = [(row[0, 0], row[0, 1])]
    for (_, last), (near, far) in pairwise(row):
        gap, length = near - last, far - near
        before = edges[-1][1] - edges[-1][0]
        opens = abs(path.curvature_per_m) * ((before + length) / 2 + gap) * _OUTER_LEG_M
        start = edges[-1][1] + (max(gap - opens, _SHORTEST_GAP_M) if opens > 0 else gap)
        edges.append((start, start + length))
    edges_m = np.array(edges)
    ends, middle = path.at(edges_m)[0], path.at(edges_m.mean(1))[0]
    chord = ends[:, 1] - ends[:, 0]
    half = np.column_stack(
        [np.hypot(*chord.T) / 2, np.full(len(edges_m), config.stone_width_m / 2)]
    )
    return TurnedStones(
        edges_m=edges_m,
        width_m=config.stone_width_m,
        centre_m=(ends.mean(1) + middle) / 2,
        yaw_rad=np.arctan2(chord[:, 1], chord[:, 0]),
        half_m=half,
    )
