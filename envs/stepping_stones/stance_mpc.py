"""Ground forces of the standing legs by convex model-predictive control.

The body is one rigid mass whose attitude stays near level (Di Carlo et al., "Dynamic locomotion in
the MIT Cheetah 3 through convex model-predictive control", IROS 2018). In the level frame, with
forces f = (f_1 .. f_legs) and torque arms r_i from the centre of mass,

    d velocity / dt = sum_i f_i / m + g          d rates / dt = I^-1 sum_i r_i x f_i
    d position / dt = velocity                   d euler / dt = T rates

The contacts are frozen over the horizon, so the dynamics matrix is nilpotent and the condensed
problem separates into Kronecker products of small constant matrices over time with one 6 x 3*legs
matrix over forces: nothing is integrated step by step. Forces are piecewise constant over blocks
of the horizon (move blocking), which leaves nine unknowns a leg. DAQP, a dual active-set method,
solves it exactly (Arnstrom et al., IEEE Transactions on Automatic Control 67, 2022).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate_extras import needs

with needs("SteppingStones-v0", "sim", "daqp"):
    import daqp

__all__ = ["BodyCommand", "BodyState", "MpcWeights", "StanceMpc"]

Floats = NDArray[np.float64]

GRAVITY_M_S2 = 9.8
_EXACT = {"eps_prox": 0.0, "primal_tol": 1e-9}
"""Settings of DAQP: nothing is added to the problem, and constraints hold to a billionth newton."""
_SOLVED = 1
"""Exit flag of DAQP."""


class BodyState(NamedTuple):
    """The body in the level frame.

    Attributes:
        euler_rad: (3,) roll, pitch and yaw; the controller uses the first two.
        height_m: height above the standing feet.
        rates_rad_s: (3,) angular velocity.
        velocity_m_s: (3,) velocity.
    """

    euler_rad: Floats
    height_m: float
    rates_rad_s: Floats
    velocity_m_s: Floats


class BodyCommand(NamedTuple):
    """The motion wanted of the body, level frame.

    Attributes:
        velocity_m_s: forward and lateral velocity.
        yaw_rate_rad_s: turning rate.
        height_m: height above the standing feet.
        turns: whether the velocity wanted turns with the body over the horizon.
    """

    velocity_m_s: tuple[float, float]
    yaw_rate_rad_s: float
    height_m: float
    turns: bool = False


@dataclass(frozen=True)
class MpcWeights:
    """Quadratic weights on the state error and on the forces: what their squares cost a step."""

    euler: tuple[float, float, float] = (5.0, 5.0, 0.2)
    position: tuple[float, float, float] = (0.0, 0.0, 10.0)
    rates: tuple[float, float, float] = (0.0, 0.0, 1.0)
    velocity: tuple[float, float, float] = (1.0, 1.0, 0.0)
    force: float = 5e-6


class StanceMpc:
    """Condensed model-predictive controller with move blocking.

    Args:
        mass_kg: total mass.
        inertia_kg_m2: (3,) principal inertia of the whole body.
        friction: coefficient of the friction pyramid.
        step_s: length of a horizon step.
        blocks: horizon steps during which the forces stay constant; their sum is the horizon.
        weights: the quadratic cost.
    """

    def __init__(
        self,
        mass_kg: float = 25.567,
        inertia_kg_m2: tuple[float, float, float] = (0.384, 1.043, 1.293),
        friction: float = 0.45,
        step_s: float = 0.025,
        blocks: tuple[int, ...] = (1, 3, 6),
        weights: MpcWeights | None = None,
    ) -> None:
        weights = weights or MpcWeights()
        self.mass_kg = mass_kg
        self.inverse_inertia = [1.0 / inertia for inertia in inertia_kg_m2]
        self.blocks = len(blocks)
        # Twice the weights, as the problem has half of u.Q u.
        self._position_weight = 2 * np.array([*weights.euler, *weights.position])
        self._velocity_weight = 2 * np.array([*weights.rates, *weights.velocity])
        horizon = sum(blocks)
        hold = np.repeat(np.eye(len(blocks)), blocks, axis=0)  # (horizon, blocks)
        ago = np.arange(1, horizon + 1)[:, None] - np.arange(horizon)
        # Velocity and position after step i that a unit acceleration in each block has made.
        to_velocity = np.where(ago > 0, step_s, 0.0) @ hold
        to_position = np.where(ago > 0, step_s**2 * (ago - 0.5), 0.0) @ hold
        self._of_velocity, self._of_position = to_velocity.T, to_position.T
        self._gram_velocity = (to_velocity.T @ to_velocity)[:, None, :, None]
        self._gram_position = (to_position.T @ to_position)[:, None, :, None]
        self._time_s = step_s * np.arange(1, horizon + 1)[:, None]
        gravity = np.array([0, 0, 0, 0, 0, -GRAVITY_M_S2])
        self._fallen_velocity = self._time_s * gravity
        self._fallen_position = (self._time_s * self._time_s / 2) * gravity
        pyramid = np.array(
            [[-1, 0, friction], [1, 0, friction], [0, -1, friction], [0, 1, friction]]
        )
        sides = np.vstack([pyramid, [0, 0, 1]])
        weight_n = mass_kg * GRAVITY_M_S2
        least, most = [0, 0, 0, 0, 0.1 * weight_n], [*[np.inf] * 4, 10 * weight_n]
        counts = [legs * len(blocks) for legs in range(5)]
        self._sides = [np.kron(np.eye(n), sides) for n in counts]
        self._lower, self._upper = ([np.tile(side, n) for n in counts] for side in (least, most))
        force_cost = 2 * weights.force * np.array(blocks, float)
        self._force_cost = [np.repeat(force_cost, 3 * legs) for legs in range(5)]
        self._pushed = [np.tile(np.eye(3) / mass_kg, legs).ravel().tolist() for legs in range(5)]

    def problem(
        self, state: BodyState, arms_m: Sequence[Floats] | Floats, command: BodyCommand
    ) -> tuple[Floats, Floats]:
        """The condensed quadratic problem, minimise u.Q u / 2 + q.u.

        Args:
            state: the body now.
            arms_m: (legs, 3) standing feet from the centre of mass, level frame.
            command: the motion wanted.

        Returns:
            Q (n, n) and q (n,), n = blocks * legs * 3, ordered (block, leg, axis), newtons.
        """
        legs = len(arms_m)
        roll, pitch, _ = state.euler_rad.tolist()
        stretch, lean = 1 / math.cos(pitch), float(np.tan(pitch))
        # Accelerations by unit forces, and the same of roll, pitch and yaw, which is 0 in this
        # frame: T = [[stretch, 0, 0], [0, 1, 0], [lean, 0, 1]].
        about_x, about_y, about_z = self.inverse_inertia
        rolls: list[float] = []
        pitches: list[float] = []
        yaws: list[float] = []
        for arm_m in arms_m:
            x, y, z = arm_m.tolist()
            rolls += (0.0, -z * about_x, y * about_x)
            pitches += (z * about_y, 0.0, -x * about_y)
            yaws += (-y * about_z, x * about_z, 0.0)
        pushed = self._pushed[legs]
        accelerate = np.array(rolls + pitches + yaws + pushed).reshape(6, 3 * legs)
        turns = [lean * a + b for a, b in zip(rolls, yaws, strict=True)]
        displace = np.array([stretch * a for a in rolls] + pitches + turns + pushed)
        displace = displace.reshape(6, 3 * legs)
        weighted_v = accelerate.T * self._velocity_weight
        weighted_p = displace.T * self._position_weight
        hessian = self._gram_velocity * weighted_v.dot(accelerate)[:, None, :]
        hessian += self._gram_position * weighted_p.dot(displace)[:, None, :]
        n = 3 * legs * self.blocks
        hessian = hessian.reshape(n, n)
        hessian.reshape(-1)[:: n + 1] += self._force_cost[legs]

        wx, wy, wz = state.rates_rad_s.tolist()
        vx, vy, vz = state.velocity_m_s.tolist()
        forward, lateral = command.velocity_m_s
        turning = command.yaw_rate_rad_s
        speed_error = np.array([wx, wy, wz - turning, vx - forward, vy - lateral, vz])
        drift = np.array(
            [stretch * wx, wy, lean * wx + wz - turning, vx - forward, vy - lateral, vz]
        )
        offset = np.array([roll, pitch, 0.0, 0.0, 0.0, state.height_m - command.height_m])
        free_velocity = speed_error + self._fallen_velocity
        if command.turns:
            angle = turning * self._time_s
            cos, sin = np.cos(angle), np.sin(angle)
            turned = np.hstack([cos * forward - sin * lateral, sin * forward + cos * lateral])
            free_velocity[:, 3:5] -= turned - np.array(command.velocity_m_s)
        free_position = offset + self._time_s * drift + self._fallen_position
        gradient = self._of_velocity.dot(free_velocity).dot(weighted_v.T)
        gradient += self._of_position.dot(free_position).dot(weighted_p.T)
        return hessian, gradient.ravel()

    def solve(
        self, state: BodyState, arms_m: Sequence[Floats] | Floats, command: BodyCommand
    ) -> Floats:
        """Forces of the ground on the standing feet for the present control step, newtons.

        Arguments are those of `problem`.

        Returns:
            (legs, 3) forces in the level frame.

        Raises:
            ValueError: if the problem has no finite solution.
        """
        legs = len(arms_m)
        if legs == 0:
            return np.zeros((0, 3))
        hessian, gradient = self.problem(state, arms_m, command)
        sides, lower, upper = self._sides[legs], self._lower[legs], self._upper[legs]
        forces, _, flag, _ = daqp.solve(hessian, gradient, sides, upper, lower, **_EXACT)
        first: Floats = forces[: 3 * legs].reshape(legs, 3)
        if flag != _SOLVED or not all(map(math.isfinite, first.ravel().tolist())):
            raise ValueError("the stance problem has no finite solution")
        return first
