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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled
from envs.stepping_stones.estimator import Estimate
from foveate_extras import needs

with needs("SteppingStones-v0", "sim", "daqp"):
    import daqp

Floats = NDArray[np.float64]

GRAVITY_M_S2 = 9.8
_EXACT = {"eps_prox": 0.0, "primal_tol": 1e-9}
"""Settings of DAQP: nothing is added to the problem, and constraints hold to a billionth newton."""
_SOLVED = 1
"""Exit flag of DAQP."""


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
    """Quadratic weights on the state error and on the forces: costs of their squares per step."""

    euler: tuple[float, float, float] = (5.0, 5.0, 0.2)
    position: tuple[float, float, float] = (0.0, 0.0, 10.0)
    rates: tuple[float, float, float] = (0.0, 0.0, 1.0)
    velocity: tuple[float, float, float] = (1.0, 1.0, 0.0)
    force: float = 5e-6


class _Horizon(NamedTuple):
    """The constant part of a problem; H steps, B blocks.

    Attributes:
        times_s: (H,) of each step's end.
        reached: (2, B, H) velocity and position after a step that a unit acceleration in a block
            has made.
        gram: (2, B, B) their products, summed over the steps.
        weight: (2, 6) of rates and velocity, and of attitude and position.
        force_cost: (B,) cost of the square of a force. lightness: (4,) one over the principal
        inertias and the mass.
    """

    times_s: Floats
    reached: Floats
    gram: Floats
    weight: Floats
    force_cost: Floats
    lightness: Floats


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
        horizon = sum(blocks)
        hold = np.repeat(np.eye(len(blocks)), blocks, axis=0)  # (horizon, blocks)
        ago = np.arange(1, horizon + 1)[:, None] - np.arange(horizon)
        to_velocity = (np.where(ago > 0, step_s, 0.0) @ hold).T.copy()
        to_position = (np.where(ago > 0, step_s**2 * (ago - 0.5), 0.0) @ hold).T.copy()
        self._horizon = _Horizon(
            times_s=step_s * np.arange(1.0, horizon + 1),
            reached=np.stack([to_velocity, to_position]),
            gram=np.stack([to_velocity @ to_velocity.T, to_position @ to_position.T]),
            # Twice the weights, as the problem has half of u.Q u.
            weight=2
            * np.array([[*weights.rates, *weights.velocity], [*weights.euler, *weights.position]]),
            force_cost=2 * weights.force * np.array(blocks, float),
            lightness=np.array([*(1 / of for of in inertia_kg_m2), 1 / mass_kg]),
        )
        pyramid = np.array(
            [[-1, 0, friction], [1, 0, friction], [0, -1, friction], [0, 1, friction]]
        )
        sides = np.vstack([pyramid, [0, 0, 1]])
        weight_n = mass_kg * GRAVITY_M_S2
        least, most = [0, 0, 0, 0, 0.1 * weight_n], [*[np.inf] * 4, 10 * weight_n]
        counts = [legs * len(blocks) for legs in range(5)]
        self._limits = [
            (np.kron(np.eye(n), sides), np.tile(most, n), np.tile(least, n)) for n in counts
        ]

    def problem(
        self, state: Estimate, arms_m: Floats, command: BodyCommand
    ) -> tuple[Floats, Floats]:
        """The condensed quadratic problem, minimise u.Q u / 2 + q.u.

        Args:
            state: the body now, its attitude, angular velocity, velocity and height.
            arms_m: (legs, 3) standing feet from the centre of mass, level frame.
            command: the motion wanted.

        Returns:
            Q (n, n) and q (n,), n = blocks * legs * 3, ordered (block, leg, axis), newtons.
        """
        (forward, lateral), turning = command.velocity_m_s, command.yaw_rate_rad_s
        return _condensed(
            *self._horizon,
            arms_m,
            state.values,
            (forward, lateral, turning, command.height_m),
            command.turns,
        )

    def solve(self, state: Estimate, arms_m: Floats, command: BodyCommand) -> Floats:
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
        forces, _, flag, _ = daqp.solve(hessian, gradient, *self._limits[legs], **_EXACT)
        first: Floats = forces[: 3 * legs]
        if flag != _SOLVED or not math.isfinite(sum(first.tolist())):
            raise ValueError("the stance problem has no finite solution")
        return first.reshape(legs, 3)


@compiled
def _condensed(
    times_s: Floats,
    reached: Floats,
    gram: Floats,
    weight: Floats,
    force_cost: Floats,
    lightness: Floats,
    arms_m: Floats,
    state: Floats,
    wanted: tuple[float, float, float, float],
    turns: bool,
) -> tuple[Floats, Floats]:
    """`StanceMpc.problem` of the fields of a `_Horizon` and plain numbers."""
    (to_velocity, to_position), (velocity_gram, position_gram) = reached, gram
    velocity_weight, position_weight = weight
    of_x, of_y, of_z, of_mass = lightness
    euler_rad, rates_rad_s, velocity_m_s = state[:3], state[3:6], state[6:9]
    stretch, lean = 1 / math.cos(euler_rad[1]), math.tan(euler_rad[1])
    ahead, aside, turning, height_m = wanted
    legs, blocks = len(arms_m), len(force_cost)

    # Accelerations by unit forces, and the same of roll, pitch and yaw, which is 0 in this frame:
    # T = [[stretch, 0, 0], [0, 1, 0], [lean, 0, 1]].
    accelerate = np.zeros((6, 3 * legs))
    for leg in range(legs):
        x, y, z = arms_m[leg]
        at = 3 * leg
        accelerate[0, at + 1], accelerate[0, at + 2] = -z * of_x, y * of_x
        accelerate[1, at], accelerate[1, at + 2] = z * of_y, -x * of_y
        accelerate[2, at], accelerate[2, at + 1] = -y * of_z, x * of_z
        for axis in range(3):
            accelerate[3 + axis, at + axis] = of_mass
    displace = accelerate.copy()
    displace[0] *= stretch
    displace[2] += lean * accelerate[0]

    n = 3 * legs
    hessian = np.empty((blocks * n, blocks * n))
    for i in range(n):
        for j in range(n):
            velocity = position = 0.0
            for k in range(6):
                velocity += accelerate[k, i] * velocity_weight[k] * accelerate[k, j]
                position += displace[k, i] * position_weight[k] * displace[k, j]
            for one in range(blocks):
                for other in range(blocks):
                    hessian[one * n + i, other * n + j] = (
                        velocity_gram[one, other] * velocity + position_gram[one, other] * position
                    )
    for at in range(blocks * n):
        hessian[at, at] += force_cost[at // n]

    # Errors of velocity and position at the end of each step without any force.
    error, drift, offset = np.empty(6), np.empty(6), np.zeros(6)
    error[:3] = rates_rad_s
    error[2] -= turning
    error[3:] = velocity_m_s
    error[3] -= ahead
    error[4] -= aside
    drift[:] = error
    drift[0] *= stretch
    drift[2] += lean * rates_rad_s[0]
    offset[:2] = euler_rad[:2]
    offset[5] = state[9] - height_m
    gradient, velocities, positions = np.empty(blocks * n), np.empty(6), np.empty(6)
    for block in range(blocks):
        velocities[:] = positions[:] = 0.0
        for step in range(len(times_s)):
            time_s = times_s[step]
            of_velocity = to_velocity[block, step]
            of_position = to_position[block, step]
            for k in range(6):
                velocities[k] += of_velocity * error[k]
                positions[k] += of_position * (offset[k] + time_s * drift[k])
            velocities[5] -= of_velocity * time_s * GRAVITY_M_S2
            positions[5] -= of_position * (time_s * time_s / 2) * GRAVITY_M_S2
            if turns:
                cos, sin = math.cos(turning * time_s), math.sin(turning * time_s)
                velocities[3] -= of_velocity * (cos * ahead - sin * aside - ahead)
                velocities[4] -= of_velocity * (sin * ahead + cos * aside - aside)
        velocities *= velocity_weight
        positions *= position_weight
        for i in range(n):
            gradient[block * n + i] = 0.0
            for k in range(6):
                gradient[block * n + i] += velocities[k] * accelerate[k, i]
                gradient[block * n + i] += positions[k] * displace[k, i]
    return hessian, gradient
