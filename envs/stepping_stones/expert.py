"""The scripted expert: it knows the stones and snaps each foothold to the nearest safe point."""

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.terrain import Stones

__all__ = ["expert_footholds"]

_MARGIN_M = 0.05
_CENTRING_PER_S = 1.5


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
    return offsets, -_CENTRING_PER_S * y_m
