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

from dataclasses import dataclass

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


@dataclass(frozen=True)
class BodyState:
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


@dataclass(frozen=True)
class BodyCommand:
    """The motion wanted of the body, level frame.

    Attributes:
        velocity_m_s: (2,) forward and lateral velocity.
        yaw_rate_rad_s: turning rate.
        height_m: height above the standing feet.
        turns: whether the velocity wanted turns with the body over the horizon.
    """

    velocity_m_s: Floats
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
        self.inverse_inertia = 1.0 / np.array(inertia_kg_m2)
        self.blocks = len(blocks)
        self._position_weight = np.array([*weights.euler, *weights.position])
        self._velocity_weight = np.array([*weights.rates, *weights.velocity])
        horizon = sum(blocks)
        hold = np.repeat(np.eye(len(blocks)), blocks, axis=0)  # (horizon, blocks)
        ago = np.arange(1, horizon + 1)[:, None] - np.arange(horizon)
        # Velocity and position after step i that a unit acceleration in each block has made.
        self._to_velocity = np.where(ago > 0, step_s, 0.0) @ hold
        self._to_position = np.where(ago > 0, step_s**2 * (ago - 0.5), 0.0) @ hold
        self._gram_velocity = self._to_velocity.T @ self._to_velocity
        self._gram_position = self._to_position.T @ self._to_position
        self._time_s = step_s * np.arange(1, horizon + 1)[:, None]
        self._force_cost = 2 * weights.force * np.array(blocks, float)
        pyramid = np.array(
            [[-1, 0, friction], [1, 0, friction], [0, -1, friction], [0, 1, friction]]
        )
        sides = np.vstack([pyramid, [0, 0, 1], [0, 0, -1]])
        weight_n = mass_kg * GRAVITY_M_S2
        bounds = np.array([0, 0, 0, 0, 0.1 * weight_n, -10 * weight_n])
        counts = [legs * len(blocks) for legs in range(5)]
        self._sides = [np.kron(np.eye(n), sides) for n in counts]
        self._lower = [np.tile(bounds, n) for n in counts]
        self._upper = [np.full_like(lower, np.inf) for lower in self._lower]

    def problem(
        self, state: BodyState, arms_m: Floats, command: BodyCommand
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
        pitch = state.euler_rad[1]
        euler_rate = np.array(
            [[1 / np.cos(pitch), 0, 0], [0, 1, 0], [np.tan(pitch), 0, 1]]  # yaw is 0 in this frame
        )
        to_velocity = np.zeros((6, legs, 3))
        x, y, z = arms_m.T
        turn = to_velocity[:3]
        turn[0, :, 1], turn[0, :, 2] = -z, y
        turn[1, :, 0], turn[1, :, 2] = z, -x
        turn[2, :, 0], turn[2, :, 1] = -y, x
        turn *= self.inverse_inertia[:, None, None]
        for k in range(3):
            to_velocity[3 + k, :, k] = 1 / self.mass_kg
        accelerate = to_velocity.reshape(6, 3 * legs)
        displace = accelerate.copy()
        displace[:3] = euler_rate @ accelerate[:3]
        weighted_v = accelerate.T * self._velocity_weight
        weighted_p = displace.T * self._position_weight
        n = 3 * legs * self.blocks
        hessian = self._gram_velocity[:, None, :, None] * (weighted_v @ accelerate)[:, None, :]
        hessian += self._gram_position[:, None, :, None] * (weighted_p @ displace)[:, None, :]
        hessian = 2 * hessian.reshape(n, n)
        hessian[np.arange(n), np.arange(n)] += np.repeat(self._force_cost, 3 * legs)

        t = self._time_s
        gravity = np.array([0, 0, 0, 0, 0, -GRAVITY_M_S2])
        speed = np.concatenate([state.rates_rad_s, state.velocity_m_s])
        speed_error = speed.copy()
        speed_error[2] -= command.yaw_rate_rad_s
        speed_error[3:5] -= command.velocity_m_s
        drift = speed_error.copy()
        drift[:3] = euler_rate @ state.rates_rad_s
        drift[2] -= command.yaw_rate_rad_s
        roll, pitch, _ = state.euler_rad
        offset = np.array([roll, pitch, 0.0, 0.0, 0.0, state.height_m - command.height_m])
        free_velocity = speed_error + t * gravity
        if command.turns:
            x, y = command.velocity_m_s
            cos, sin = np.cos(command.yaw_rate_rad_s * t), np.sin(command.yaw_rate_rad_s * t)
            turned = np.hstack([cos * x - sin * y, sin * x + cos * y])
            free_velocity[:, 3:5] -= turned - command.velocity_m_s
        free_position = offset + t * drift + (t * t / 2) * gravity
        gradient = (self._to_velocity.T @ free_velocity) @ weighted_v.T
        gradient += (self._to_position.T @ free_position) @ weighted_p.T
        return hessian, 2 * gradient.ravel()

    def solve(self, state: BodyState, arms_m: Floats, command: BodyCommand) -> Floats:
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
        if flag != _SOLVED or not np.isfinite(first).all():
            raise ValueError("the stance problem has no finite solution")
        return first
