"""The scripted expert: two tools that scoop balls from both sides and carry them to a bowl.

It lowers the tools at the two ends of a stripe across the table, sweeps both blades together so
that the balls between them climb into a closed trough, lifts it, carries it over the nearer bowl
and opens it there. It knows where the balls are.

Its action is a function of the present targets of the tools and the positions of the balls: it can
be called in any state, after any disturbance, and can be learned from observations."""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.stripes import Stripe, StripePlanner
from envs.bimanual_sweep.tools import blade_width_m

Floats = NDArray[np.float64]

_LOWEST_M = 0.003
_HOVER_M, _LIFT_M, _DUMP_M, _LEAVE_M = 0.13, 0.15, 0.085, 0.17
_CLOSED_M, _OPEN_M = 0.002, 0.075  # from a blade's edge to the middle between the two
_DUMP_ROLL_RAD = 0.25
_TURN_RAD = 0.12  # a decision
_LOW_M = 0.03  # below this the blades may sweep
_NEAR_M = 0.006  # close enough to a waypoint to proceed to the next
_LOWER_M, _LOWER_RAD = 0.03, 0.1  # a decision away: tools come nearer while they are lowered
_LEAK_M = 0.012  # a wider gap, or tools further out of line, lose balls
_NESTING_M = 0.08  # from here on the tools must be in line
_OVER_BOWL_M = 0.05
_HELD_HEIGHT_M = 0.10  # of what lies in the trough, above its edges


class SweepExpert:
    """Acts in one episode.

    Args:
        config: the task's settings.
        bowls_m: (2, 2) centres of the bowls.
    """

    def __init__(self, config: BimanualSweepConfig, bowls_m: Floats) -> None:
        self._bowls_m = bowls_m
        self._inner_m = blade_width_m(config, -1) / 2
        self._depth_m = config.blade_length_m * math.cos(config.blade_slope_rad)
        self._config = config

    @cached_property
    def _planner(self) -> StripePlanner:
        """Created on first use, because it takes as long as five steps and policies do not need
        it."""
        return StripePlanner(self._config, self._bowls_m)

    def action(self, targets: Floats, balls_m: Floats, on_table: NDArray[np.bool_]) -> Floats:
        """The change (2, 6) of the tools' targets now.

        Args:
            targets: (2, 6) present targets of both tools: x, y, z, roll, pitch, yaw.
            balls_m: (n, 3) centres of the balls outside the bowls.
            on_table: (n,) which of them lie on the table.
        """
        tools = _Tools(targets)
        held = self._held(tools, balls_m)
        bowl = self._bowls_m[np.linalg.norm(self._bowls_m - tools.middle, axis=1).argmin()]
        over = float(np.linalg.norm(bowl - tools.middle)) < _OVER_BOWL_M
        opening = (tools.tilted or tools.gap > 4 * _CLOSED_M) and not tools.open_wide
        if over and tools.low > _DUMP_M - 0.03 and (held.any() or opening):
            return self._dump(tools, bowl)
        if over and tools.open_wide and tools.tilted and tools.low < _LEAVE_M - _NEAR_M:
            return _towards(tools.at(tools.ends, _LEAVE_M, 0.0, _DUMP_ROLL_RAD), targets, 0.03)
        if held.any() and (tools.closed or tools.low > _LOW_M):
            return self._carry(tools, bowl)
        if tools.can_sweep and held.any():
            return self._close(tools)
        return self._seek(tools, balls_m[on_table & ~held, :2])

    def done(self, targets: Floats, balls_m: Floats, on_table: NDArray[np.bool_]) -> bool:
        """Whether nothing is left to do; arguments as in `action`."""
        tools = _Tools(targets)
        if self._held(tools, balls_m).any():
            return False
        return self._planner.best(balls_m[on_table, :2], tools.ends) is None

    def _held(self, tools: "_Tools", balls_m: Floats) -> NDArray[np.bool_]:
        """(n,) which balls lie between the blades, within their width."""
        if not (tools.in_line and (tools.can_sweep or tools.closed or tools.low > _LOW_M)):
            return np.zeros(len(balls_m), bool)
        away = balls_m[:, :2] - tools.middle
        beside, ahead = away @ tools.across, np.abs(away @ tools.along)
        height = balls_m[:, 2] - tools.low
        reach = tools.gap / 2 + (self._depth_m if tools.low > _LOW_M or tools.closed else 0.02)
        inside = (np.abs(beside) < self._inner_m) & (ahead < reach)
        return inside & (height > 0) & (height < _HELD_HEIGHT_M)

    def _close(self, tools: "_Tools") -> Floats:
        """Sweep both blades together on the table; in line first, when they are near."""
        askew = tools.gap < _NESTING_M and tools.askew > _NEAR_M
        ends = tools.apart(tools.gap / 2 if askew else _CLOSED_M)
        return _towards(tools.at(ends, _LOWEST_M, tools.yaw), tools.targets, 0.025)

    def _carry(self, tools: "_Tools", bowl: Floats) -> Floats:
        """Lift the closed trough, take it over a bowl, and lower it there."""
        distance = float(np.linalg.norm(bowl - tools.middle))
        if tools.gap > _LEAK_M or tools.askew > _LEAK_M:  # shut it before going on
            height = float(tools.targets[:, 2].mean())
            poses = tools.at(tools.apart(_CLOSED_M), height, tools.yaw)
            return _towards(poses, tools.targets, 0.04)
        steps = max(distance / _LOWER_M, abs(tools.yaw) / _LOWER_RAD)
        if steps > 1:
            if tools.low < _LIFT_M - _NEAR_M and distance > _OVER_BOWL_M:
                speed = 0.01 if tools.low < 0.02 else 0.025  # balls still climb
                poses = tools.at(tools.apart(_CLOSED_M), _LIFT_M, tools.yaw)
                return _towards(poses, tools.targets, speed)
            yaw = tools.yaw * (1 - 1 / steps)
            centre = tools.middle + (bowl - tools.middle) / steps
            height = _LIFT_M
        else:
            yaw, centre, height = 0.0, bowl, _DUMP_M
        along = np.array([-math.sin(yaw), math.cos(yaw)]) * _CLOSED_M
        poses = tools.at((centre + along, centre - along), height, yaw)
        return _towards(poses, tools.targets, 0.04)

    def _dump(self, tools: "_Tools", bowl: Floats) -> Floats:
        """Lower the trough over a bowl, and open it."""
        y = np.array([0.0, 1.0])
        if tools.closed and not tools.tilted and tools.low > _DUMP_M + _NEAR_M:
            return self._carry(tools, bowl)
        ends = bowl + y * _OPEN_M, bowl - y * _OPEN_M
        return _towards(tools.at(ends, _DUMP_M, 0.0, _DUMP_ROLL_RAD), tools.targets, 0.015)

    def _seek(self, tools: "_Tools", loose_m: Floats) -> Floats:
        """Go to the ends of the best stripe, high, and come down there."""
        stripe = self._planner.best(loose_m, tools.ends)
        if stripe is None:
            stripe = Stripe(np.zeros(2), 0.0, 0.30, 0.30)
            return _towards(tools.at(stripe.ends_m, 0.20, 0.0), tools.targets, 0.04)
        away = max(
            float(np.linalg.norm(end - goal))
            for end, goal in zip(tools.ends, stripe.ends_m, strict=True)
        )
        turned = float(np.abs(tools.targets[:, 3:] - [0.0, 0.0, stripe.yaw_rad]).max())
        if away < _LOWER_M and turned < _LOWER_RAD:
            return _towards(tools.at(stripe.ends_m, _LOWEST_M, stripe.yaw_rad), tools.targets, 0.03)
        if tools.low < _HOVER_M - 0.04 and away > _LOWER_M:
            up = tools.targets.copy()
            up[:, 2] = _HOVER_M
            return _towards(up, tools.targets, 0.03)
        return _towards(tools.at(stripe.ends_m, _HOVER_M, stripe.yaw_rad), tools.targets, 0.04)


class _Tools:
    """Joint description of the targets of both tools."""

    def __init__(self, targets: Floats) -> None:
        self.targets = targets
        self.ends = targets[0, :2], targets[1, :2]
        self.middle = (targets[0, :2] + targets[1, :2]) / 2
        self.yaw = float(targets[:, 5].mean())
        self.along = np.array([-math.sin(self.yaw), math.cos(self.yaw)])
        self.across = np.array([math.cos(self.yaw), math.sin(self.yaw)])
        apart = targets[0, :2] - targets[1, :2]
        self.gap = float(apart @ self.along)
        self.askew = abs(float(apart @ self.across))
        self.low = float(targets[:, 2].min())
        uneven = abs(float(targets[0, 2] - targets[1, 2]))
        self.in_line = self.askew < 0.03 and uneven < 0.03
        self.tilted = bool(np.abs(targets[:, 3]).max() > 0.1)
        self.closed = self.in_line and self.gap < 0.015 and not self.tilted
        self.open_wide = self.gap > 2 * _OPEN_M - 0.01
        self.can_sweep = self.in_line and bool(targets[:, 2].max() < _LOW_M)

    def apart(self, half_m: float) -> tuple[Floats, Floats]:
        """Places (x, y) of the left and the right tool, so far from their middle, in line."""
        along = self.along * half_m
        return self.middle + along, self.middle - along

    @staticmethod
    def at(
        ends_m: tuple[Floats, Floats], height_m: float, yaw_rad: float, roll_rad: float = 0.0
    ) -> Floats:
        """(2, 6) poses of both tools at two places (x, y), rolled outwards."""
        left, right = ends_m
        return np.array(
            [
                [*left, height_m, roll_rad, 0.0, yaw_rad],
                [*right, height_m, -roll_rad, 0.0, yaw_rad],
            ]
        )


def _towards(poses: Floats, targets: Floats, speed_m: float) -> Floats:
    """The change (2, 6) that brings both tools nearer to `poses`, so that they arrive together."""
    missing = poses - targets
    decisions = max(
        float(np.linalg.norm(missing[:, :3], axis=1).max()) / speed_m,
        float(np.abs(missing[:, 3:]).max()) / _TURN_RAD,
    )
    return missing / max(1.0, decisions)
