"""The scripted expert: it knows the stones and snaps each foothold to the nearest safe point."""

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.path import Path
from envs.stepping_stones.robot import RobotState
from envs.stepping_stones.terrain import Stones
from envs.stepping_stones.turned_stones import TurnedStones
from envs.stepping_stones.twist import turn, wrapped

Floats = NDArray[np.float64]

_MARGIN_M = 0.05
_CENTRING_PER_S = 1.5
_HEADING_PER_S, _LOOK_AHEAD_M = 2.0, 0.1
_FORWARD_M, _LATERAL_M = 0.01, 0.02  # between the footholds that are compared
_MARGIN_COST, _LATERAL_COST = 10.0, 2.0  # a metre, beside a metre ahead


def expert_footholds(
    stones: Stones, nominal_x_m: NDArray[np.float64], y_m: float
) -> tuple[NDArray[np.float64], float]:
    """Forward foothold offsets and the lateral speed that keep the robot on the stones.

    Args:
        stones: the terrain.
        nominal_x_m: (4,) world x of the uncorrected footholds.
        y_m: world y of the base.

    Returns:
        (4,) forward offsets, metres; lateral speed, metres a second. Neither is clipped.
    """
    offsets = stones.nearest_safe_m(nominal_x_m, _MARGIN_M) - nominal_x_m
    return offsets, centring_m_s(y_m)


def centring_m_s(aside_m: float) -> float:
    """Lateral speed that leads back to the path's middle from so far left of it."""
    return -_CENTRING_PER_S * aside_m


def steer(path: Path, state: RobotState, speed_m_s: float) -> tuple[float, float]:
    """Lateral speed, metres a second, and yaw rate, radians a second, that keep to a path.

    Args:
        path: where the stones lie.
        state: of the robot.
        speed_m_s: commanded, negative backward.
    """
    place = path.place(state.position_m)
    ahead_m = place.along_m + _LOOK_AHEAD_M * float(np.sign(speed_m_s))
    off = wrapped(float(path.at(np.array(ahead_m))[1]) - float(state.euler_rad[2]))
    rate = speed_m_s * path.curvature_at(ahead_m) + _HEADING_PER_S * off
    return centring_m_s(place.aside_m), rate


def best_footholds(
    stones: TurnedStones, nominal_m: Floats, heading_rad: float, reach_m: Floats
) -> Floats:
    """(4, 2) forward and lateral foothold offsets, the best of a grid for each leg, metres.

    The cost of an offset is -10 min(margin, 5 cm) + |forward| + 2 |lateral|.

    Args:
        stones: those within reach.
        nominal_m: (4, 2) uncorrected footholds, world.
        heading_rad: of the forward direction.
        reach_m: (2,) the largest offsets forward and to a side.
    """
    steps = np.rint(reach_m / (_FORWARD_M, _LATERAL_M)).astype(int)
    forward, lateral = (np.linspace(-r, r, 2 * n + 1) for r, n in zip(reach_m, steps, strict=True))
    offsets = np.stack(np.meshgrid(forward, lateral, indexing="ij"), -1).reshape(-1, 2)
    points = nominal_m[:, None] + offsets @ turn(heading_rad).T
    margin = np.minimum(stones.margin_m(points), _MARGIN_M)
    cost = -_MARGIN_COST * margin + np.abs(offsets) @ (1.0, _LATERAL_COST)
    best: Floats = offsets[cost.argmin(1)]
    return best


def action_share(value: float, largest: float) -> float:
    """The action in [-1, 1] that comes nearest to a value, of which 1 is the largest."""
    return float(np.clip(value / largest, -1, 1)) if largest > 0 else 0.0
