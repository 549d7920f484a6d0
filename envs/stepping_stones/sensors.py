"""Sensors of the robot and their noise.

Standard deviations at noise scale 1, each drawn at every control step: attitude 0.025 rad and
angular rate 0.1 rad/s (as in bullet3's two-camera stepping-stone task), joint angles 0.005 rad (2.5
mm at the toes), joint speeds 0.05 rad/s, depth 5 mm; and, drawn once an episode, a start posture
0.03 rad off. Foot contacts are switches and have none."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled
from envs.stepping_stones.robot import RobotState

Floats = NDArray[np.float64]

_EULER_RAD, _RATE_RAD_S, _JOINT_RAD, _JOINT_RAD_S, _DEPTH_M, _POSTURE_RAD = (
    0.025,
    0.1,
    0.005,
    0.05,
    0.005,
    0.03,
)


class Measurement(NamedTuple):
    """One reading of all proprioceptive sensors.

    Attributes:
        values: (30,) roll, pitch, yaw and angular velocity in the base frame from the inertial
            unit, then (4, 3) joint angles and (4, 3) joint speeds from the encoders.
        contacts: foot switches of the four legs.
    """

    values: Floats
    contacts: tuple[bool, ...]

    @property
    def joints_rad(self) -> Floats:
        """(4, 3) joint angles."""
        return self.values[6:18].reshape(4, 3)


class Sensors:
    """Adds reproducible noise to true states.

    Args:
        scale: factor on all standard deviations; 0 measures the truth.
        rng: source of the noise.
    """

    def __init__(self, scale: float, rng: np.random.Generator) -> None:
        self.scale = scale
        self._rng = rng
        self._std = scale * np.concatenate(
            [
                np.full(3, _EULER_RAD),
                np.full(3, _RATE_RAD_S),
                np.full(12, _JOINT_RAD),
                np.full(12, _JOINT_RAD_S),
            ]
        )

    def posture_error_rad(self) -> Floats:
        """Error (4, 3) of the start posture."""
        return self.scale * _POSTURE_RAD * self._rng.standard_normal((4, 3))

    def measure(self, state: RobotState) -> Measurement:
        """Read all proprioceptive sensors once."""
        values = self._rng.standard_normal(30)
        _add(values, self._std, state.sensed)
        return Measurement(values, state.contacts)

    def depth(self, depth_m: NDArray[np.float32]) -> NDArray[np.float32]:
        """Depth images with noise."""
        if self.scale == 0:
            return depth_m
        noisy_m = self._rng.standard_normal(depth_m.shape, dtype=np.float32)
        noisy_m *= np.float32(self.scale * _DEPTH_M)
        noisy_m += depth_m
        return noisy_m


@compiled
def _add(noise: Floats, std: Floats, true: Floats) -> None:
    """Make noise of unit variance a measurement of true values, in place."""
    for at in range(len(noise)):
        noise[at] = noise[at] * std[at] + true[at]
