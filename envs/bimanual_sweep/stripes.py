"""Choice of where to sweep: stripes across the table, scored by the balls that they catch."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.tools import blade_width_m, half_width_m

Floats = NDArray[np.float64]

_YAWS_RAD = (0.0, -0.3, 0.3, -0.6, 0.6)
_OFFSETS_M = np.arange(-5, 6) * 0.025
_MIDDLES_M = (0.0, -0.08, 0.08)
_STARTS_M = (0.14, 0.20, 0.27)  # distances of a sweep's ends from its middle
_REACH_M = 0.33  # how far from the middle of the table a tool may be lowered
_MARGIN_M = 0.015  # between a tool and a bowl
_TURNED, _SHIFTED, _LONG, _ASIDE, _FAR = 3.0, 2.0, 0.2, 0.1, 10.0  # what they cost, in balls


@dataclass(frozen=True)
class Stripe:
    """A sweep: its middle (x, y), its direction, and how far from the middle each tool begins."""

    centre_m: Floats
    yaw_rad: float
    left_m: float
    right_m: float

    @property
    def ends_m(self) -> tuple[Floats, Floats]:
        """Initial positions of the left and the right tool, (x, y)."""
        along = np.array([-math.sin(self.yaw_rad), math.cos(self.yaw_rad)])
        return self.centre_m + along * self.left_m, self.centre_m - along * self.right_m


class StripePlanner:
    """All stripes of an episode that keep clear of the bowls and within reach.

    Args:
        config: the task's settings.
        bowls_m: (2, 2) centres of the bowls.
    """

    def __init__(self, config: BimanualSweepConfig, bowls_m: Floats) -> None:
        self._config = config
        self._outer_m = half_width_m(config)
        self._caught_m = blade_width_m(config, -1) / 2 - 0.006
        stripes, rows = [], []
        for yaw in _YAWS_RAD:
            across = np.array([math.cos(yaw), math.sin(yaw)])
            along = np.array([-math.sin(yaw), math.cos(yaw)])
            for offset in _OFFSETS_M:
                for middle in _MIDDLES_M:
                    for start in _STARTS_M:
                        stripe = Stripe(across * offset + along * middle, yaw, start, start)
                        if not self._is_clear(stripe, across, along, bowls_m):
                            continue
                        cost = _TURNED * (yaw != 0) + _SHIFTED * (middle != 0)
                        cost += _LONG * start + _ASIDE * abs(offset)
                        stripes.append(stripe)
                        rows.append([*across, *along, offset, middle, start, cost])
        self._stripes = stripes
        table = np.array(rows).reshape(-1, 8)
        self._across, self._along = table[:, 0:2], table[:, 2:4]
        self._offset, self._middle, self._start, self._cost = table[:, 4:].T
        self._ends = np.array([stripe.ends_m for stripe in stripes]).reshape(-1, 2, 2)

    def best(self, balls_m: Floats, tools_m: tuple[Floats, Floats]) -> Stripe | None:
        """The stripe that catches most balls, lowers the tools on none, and is not far from them.

        Args:
            balls_m: (n, 2) balls on the table.
            tools_m: where the left and the right tool are, (x, y).
        """
        if not len(balls_m) or not self._stripes:
            return None
        beside = balls_m @ self._across.T - self._offset  # (balls, stripes)
        ahead = balls_m @ self._along.T - self._middle
        caught = (np.abs(beside) < self._caught_m) & (np.abs(ahead) < self._start - 0.02)
        number = caught.sum(axis=0)
        away = np.linalg.norm(self._ends - np.array(tools_m), axis=-1).max(axis=1)
        score = number - 0.8 * self._hit(beside, ahead) - self._cost - _FAR * away
        score[number == 0] = -math.inf
        index = int(score.argmax())
        return self._stripes[index] if number[index] else None

    def _is_clear(self, stripe: Stripe, across: Floats, along: Floats, bowls_m: Floats) -> bool:
        """Whether the tools stay off the bowls and inside their reach on the whole way."""
        rim = self._config.bowl_rim_radius_m + _MARGIN_M
        for place in np.linspace(-stripe.right_m - 0.09, stripe.left_m + 0.09, 7):
            middle = stripe.centre_m + along * place
            for side in (-1, 1):
                corner = middle + side * across * self._outer_m
                if (np.linalg.norm(bowls_m - corner, axis=1) < rim).any():
                    return False
        left, right = stripe.ends_m
        reach = left[1] <= _REACH_M and right[1] >= -_REACH_M
        return bool(reach and left[1] > 0 > right[1] and abs(left[0]) < 0.3 > abs(right[0]))

    def _hit(self, beside: Floats, ahead: Floats) -> NDArray[np.int64]:
        """(stripes,) how many balls lie where a tool comes down."""
        radius = self._config.ball_radius_m
        on_wall = np.abs(np.abs(beside) - self._outer_m) < radius + 0.006
        under = np.abs(beside) < self._outer_m
        hit = np.zeros(len(self._stripes), np.int64)
        for away, reach in ((ahead, self._config.wall_ahead_m), (-ahead, 0.0)):
            depth = away - self._start
            hit += (on_wall & (depth > -reach - radius) & (depth < 0.11)).sum(axis=0)
            hit += (under & (depth > -radius) & (depth < 0.11)).sum(axis=0)
        return hit
