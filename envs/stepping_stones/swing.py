"""Swing legs: from lift-off to the foothold that the policy requested.

Positions are in the *level frame*: origin at the base, z up against gravity, x along the robot's
heading. A foothold is latched at lift-off in the frame that the base will have at landing, so a
foot follows its hip; holding it still on the ground instead let the trot tip sideways.
"""

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled

Floats = NDArray[np.float64]

_PEAK, _DOWN = 0.45, 0.90  # swing progress at the highest point and above the foothold
_PRESS_M = 0.03  # the toe aims below the ground so that it surely lands


class SwingLegs:
    """Latched lift-off points and footholds of four legs.

    Args:
        clearance_m: height of the swing's peak above the line from lift-off to foothold.
    """

    def __init__(self, clearance_m: float = 0.07) -> None:
        self.clearance_m = clearance_m
        self.lift_m = np.zeros((4, 3))
        self.foothold_m = np.zeros((4, 3))

    def lift_off(self, leg: int, toes_m: Floats, foothold_m: Floats) -> None:
        """Latch a leg that leaves the ground now.

        Args:
            leg: which.
            toes_m: (4, 3) present toes, level frame.
            foothold_m: (4, 3) footholds in the level frame that the base will have at landing.
        """
        self.lift_m[leg] = toes_m[leg]
        self.foothold_m[leg] = foothold_m[leg]


@compiled
def toe_target(
    time: float, lift_m: Floats, foothold_m: Floats, ground_m: float, clearance_m: float
) -> Floats:
    """Toe target (3,) of a swinging leg, level frame.

    Args:
        time: of `Trot.swings`.
        lift_m, foothold_m: (3,), of `SwingLegs`.
        ground_m: height of the ground below the base, negative, metres.
        clearance_m: of `SwingLegs`.
    """
    landing = foothold_m.copy()
    landing[2] = ground_m
    if time >= _DOWN:
        landing[2] -= _PRESS_M
        return landing
    peak = 0.3 * lift_m + 0.7 * landing
    peak[2] += clearance_m
    if time >= _PEAK:
        return peak + (landing - peak) * ((time - _PEAK) / (_DOWN - _PEAK))
    return lift_m + (peak - lift_m) * (time / _PEAK)
