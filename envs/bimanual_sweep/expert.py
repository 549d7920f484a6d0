"""The scripted expert: two hands that scoop balls from both sides and carry them to a bowl.

It plans a stripe across the table, lowers the tools at its two ends, sweeps both blades together so
that the balls between them climb into a closed trough, lifts it, carries it over the nearer bowl
and opens it there. It knows where the balls are.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.tools import blade_width_m, half_width_m

__all__ = ["SweepExpert"]

Floats = NDArray[np.float64]

_YAWS_RAD = (0.0, -0.3, 0.3, -0.6, 0.6)
_STRIPES_M = np.arange(-5, 6) * 0.025
_REACH_M = 0.36  # how far from the middle a tool may be lowered
_START_M = (0.14, 0.20, 0.27, 0.34)  # distances of a sweep's start from the middle
_ON_TABLE_M = 0.003
_HOVER_M, _LIFT_M, _DUMP_M, _LEAVE_M = 0.13, 0.15, 0.085, 0.17
_CLOSED_M, _OPEN_M = 0.002, 0.075  # from a blade's edge to the middle between the two
_DUMP_ROLL_RAD = 0.25
_MARGIN_M = 0.015  # between a tool and a bowl


@dataclass(frozen=True)
class _Stripe:
    centre_m: Floats
    yaw_rad: float
    left_m: float
    right_m: float

    @property
    def along(self) -> Floats:
        """Unit vector (x, y) from the right end to the left."""
        return np.array([-math.sin(self.yaw_rad), math.cos(self.yaw_rad)])


class SweepExpert:
    """Plans and acts for one episode; `done` when it sees nothing that it could do.

    Args:
        config: the task's settings.
        bowls_m: (2, 2) centres of the bowls.
    """

    def __init__(self, config: BimanualSweepConfig, bowls_m: Floats) -> None:
        self._config, self._bowls_m = config, bowls_m
        self.done = False
        self._inner_m = blade_width_m(config, -1) / 2
        self._outer_m = half_width_m(config)
        self._targets = np.empty((2, 6))
        self._loose_m = np.empty((0, 2))
        self._moves = self._sweep()

    def action(self, targets: Floats, loose_m: Floats) -> Floats:
        """The change (2, 6) of the tools' targets now.

        Args:
            targets: (2, 6) present targets of both tools: x, y, z, roll, pitch, yaw.
            loose_m: (n, 2) balls on the table and outside the bowls.
        """
        self._targets, self._loose_m = targets, loose_m
        return next(self._moves)

    def _sweep(self) -> Iterator[Floats]:
        while True:
            stripe = self._plan()
            self.done = stripe is None
            if stripe is None:
                yield from self._rest()
                continue
            centre, along, yaw = stripe.centre_m, stripe.along, stripe.yaw_rad
            ends = centre + along * stripe.left_m, centre - along * stripe.right_m
            yield from self._move(_poses(ends, _HOVER_M, yaw), 0.04)
            yield from self._move(_poses(ends, _ON_TABLE_M, yaw), 0.03)
            closed = centre + along * _CLOSED_M, centre - along * _CLOSED_M
            yield from self._move(_poses(closed, _ON_TABLE_M, yaw), 0.025)
            yield from self._wait(2)
            yield from self._move(_poses(closed, _LIFT_M, yaw), 0.025)
            bowl = self._bowls_m[np.linalg.norm(self._bowls_m - centre, axis=1).argmin()]
            yield from self._carry(centre, bowl, yaw)
            yield from self._dump(bowl)

    def _carry(self, start: Floats, bowl: Floats, yaw: float) -> Iterator[Floats]:
        """Take the closed trough over a bowl, turning it level with the table's edges."""
        steps = math.ceil(max(float(np.linalg.norm(bowl - start)) / 0.03, abs(yaw) / 0.1))
        for step in range(1, steps + 1):
            share = step / steps
            angle, centre = yaw * (1 - share), start + (bowl - start) * share
            along = np.array([-math.sin(angle), math.cos(angle)]) * _CLOSED_M
            yield _poses((centre + along, centre - along), _LIFT_M, angle) - self._targets

    def _dump(self, bowl: Floats) -> Iterator[Floats]:
        """Lower the trough, open it, and leave upwards."""
        y = np.array([0.0, 1.0])
        closed = bowl + y * _CLOSED_M, bowl - y * _CLOSED_M
        opened = bowl + y * _OPEN_M, bowl - y * _OPEN_M
        yield from self._move(_poses(closed, _DUMP_M, 0.0), 0.03)
        yield from self._move(_poses(opened, _DUMP_M, 0.0, _DUMP_ROLL_RAD), 0.015)
        yield from self._wait(4)
        yield from self._move(_poses(opened, _LEAVE_M, 0.0, _DUMP_ROLL_RAD), 0.03)

    def _rest(self) -> Iterator[Floats]:
        """Nothing is left to do: hold the tools apart and high."""
        ends = np.array([0.0, 0.30]), np.array([0.0, -0.30])
        yield from self._move(_poses(ends, 0.20, 0.0), 0.04)
        yield from self._wait(5)

    def _wait(self, steps: int) -> Iterator[Floats]:
        for _ in range(steps):
            yield np.zeros((2, 6))

    def _move(self, poses: Floats, speed_m: float, turn_rad: float = 0.12) -> Iterator[Floats]:
        """Bring both targets to `poses` in equal steps; give up when they do not follow."""
        left = math.inf
        while True:
            missing = poses - self._targets
            before, left = (
                left,
                max(
                    float(np.linalg.norm(missing[:, :3], axis=1).max()) / speed_m,
                    float(np.abs(missing[:, 3:]).max()) / turn_rad,
                ),
            )
            if left < 1e-3 or left > before - 1e-6:
                return
            yield missing / max(1, math.ceil(left - 1e-9))

    def _plan(self) -> _Stripe | None:
        """The stripe that catches most loose balls and lowers the tools on none."""
        balls = self._loose_m
        if not len(balls):
            return None
        best: tuple[float, _Stripe] | None = None
        for yaw in _YAWS_RAD:
            across = np.array([math.cos(yaw), math.sin(yaw)])
            along = np.array([-math.sin(yaw), math.cos(yaw)])
            for offset in _STRIPES_M:
                beside = balls @ across - offset
                caught = np.abs(beside) < self._inner_m - 0.006
                if not caught.any():
                    continue
                for middle in (0.0, -0.08, 0.08):
                    ahead = balls @ along - middle
                    for start in _START_M:
                        stripe = _Stripe(across * offset + along * middle, yaw, start, start)
                        if not self._is_clear(stripe):
                            continue
                        number = int((caught & (np.abs(ahead) < start - 0.02)).sum())
                        score = (
                            number
                            - 0.8 * self._hit(beside, ahead, start)
                            - 3.0 * (yaw != 0)
                            - 2.0 * (middle != 0)
                            - 0.2 * start
                            - 0.1 * abs(offset)
                        )
                        if number and (best is None or score > best[0]):
                            best = score, stripe
        return None if best is None else best[1]

    def _is_clear(self, stripe: _Stripe) -> bool:
        """Whether the tools stay off the bowls and inside their reach on the whole way."""
        across = np.array([math.cos(stripe.yaw_rad), math.sin(stripe.yaw_rad)])
        rim = self._config.bowl_rim_radius_m + _MARGIN_M
        for place in np.linspace(-stripe.right_m - 0.09, stripe.left_m + 0.09, 7):
            middle = stripe.centre_m + stripe.along * place
            for side in (-1, 1):
                corner = middle + side * across * self._outer_m
                if (np.linalg.norm(self._bowls_m - corner, axis=1) < rim).any():
                    return False
        left = stripe.centre_m + stripe.along * stripe.left_m
        right = stripe.centre_m - stripe.along * stripe.right_m
        reach = left[1] <= _REACH_M and right[1] >= -_REACH_M
        return bool(reach and left[1] > 0 > right[1] and abs(left[0]) < 0.3 > abs(right[0]))

    def _hit(self, beside: Floats, ahead: Floats, start: float) -> int:
        """How many balls lie where a tool comes down."""
        radius = self._config.ball_radius_m
        on_wall = np.abs(np.abs(beside) - self._outer_m) < radius + 0.006
        under = np.abs(beside) < self._outer_m
        hit = 0
        for away, reach in ((ahead, self._config.wall_ahead_m), (-ahead, 0.0)):
            depth = away - start
            hit += int((on_wall & (depth > -reach - radius) & (depth < 0.11)).sum())
            hit += int((under & (depth > -radius) & (depth < 0.11)).sum())
        return hit


def _poses(
    ends_m: tuple[Floats, Floats], height_m: float, yaw_rad: float, roll_rad: float = 0.0
) -> Floats:
    """(2, 6) poses of both tools at two places (x, y), rolled outwards."""
    return np.array(
        [
            [*end, height_m, side * roll_rad, 0.0, yaw_rad]
            for end, side in zip(ends_m, (1, -1), strict=True)
        ]
    )
