"""Swing legs: from lift-off to the foothold that the policy asked for.

Positions are in the *level frame*: origin at the base, z up against gravity, x along the robot's
heading. A foothold is latched at lift-off in the frame that the base will have at landing, so a
foot follows its hip; holding it still on the ground instead let the trot tip sideways.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["SwingLegs"]

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

    def lift_off(self, legs: NDArray[np.bool_], toes_m: Floats, foothold_m: Floats) -> None:
        """Latch the legs that leave the ground now.

        Args:
            legs: (4,) which legs lift off.
            toes_m: (4, 3) present toes, level frame.
            foothold_m: (4, 3) footholds in the level frame that the base will have at landing.
        """
        self.lift_m[legs] = toes_m[legs]
        self.foothold_m[legs] = foothold_m[legs]

    def targets(self, progress: Floats, ground_m: float) -> Floats:
        """Toe targets (4, 3), level frame, at (4,) swing progress.

        Args:
            progress: normalised swing time of each leg.
            ground_m: height of the ground below the base, negative, metres.
        """
        landing = self.foothold_m.copy()
        landing[:, 2] = ground_m
        peak = 0.3 * self.lift_m + 0.7 * landing
        peak[:, 2] += self.clearance_m
        t = progress[:, None]
        rising = self.lift_m + (peak - self.lift_m) * (t / _PEAK)
        falling = peak + (landing - peak) * ((t - _PEAK) / (_DOWN - _PEAK))
        target = np.where(t < _PEAK, rising, np.where(t < _DOWN, falling, landing))
        target[:, 2] -= np.where(progress < _DOWN, 0.0, _PRESS_M)
        return target
