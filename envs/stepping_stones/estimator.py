"""State estimation from the inertial unit, the encoders and the foot switches.

Attitude: a complementary filter (gyroscope integrated, absolute angles blended in). Velocity: the
standing feet do not move, so the base moves by minus their velocity in the base frame; averaged
over the standing feet and low-passed. Height: the base above the mean standing foot.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.kinematics import TOE_RADIUS_M, LegState
from envs.stepping_stones.sensors import Measurement

__all__ = ["Estimate", "StateEstimator", "level_rotation"]

Floats = NDArray[np.float64]

_ATTITUDE_S, _RATES_S, _VELOCITY_S, _HEIGHT_S = 0.10, 0.01, 0.02, 0.05  # time constants


@dataclass(frozen=True)
class Estimate:
    """The body as the robot believes it to be; vectors in the level frame.

    Attributes:
        euler_rad: (3,) roll, pitch, yaw.
        rotation: (3, 3) base-to-level rotation (roll and pitch).
        rates_rad_s: (3,) angular velocity.
        velocity_m_s: (3,) velocity.
        height_m: height of the base above the standing toes' centres.
        toes_m: (4, 3) toe centres.
    """

    euler_rad: Floats
    rotation: Floats
    rates_rad_s: Floats
    velocity_m_s: Floats
    height_m: float
    toes_m: Floats


def level_rotation(roll_rad: float, pitch_rad: float) -> Floats:
    """Rotation (3, 3) from the base frame to the level frame: the attitude without its yaw."""
    cr, sr, cp, sp = np.cos(roll_rad), np.sin(roll_rad), np.cos(pitch_rad), np.sin(pitch_rad)
    return np.array([[cp, sp * sr, sp * cr], [0, cr, -sr], [-sp, cp * sr, cp * cr]])


class StateEstimator:
    """Filters measurements into an `Estimate`.

    Args:
        measurement: the first reading.
        legs: kinematics at that reading.
        step_s: time between readings, seconds.
    """

    def __init__(self, measurement: Measurement, legs: LegState, step_s: float) -> None:
        self._step_s = step_s
        self._gain = {
            name: step_s / (constant + step_s)
            for name, constant in (
                ("attitude", _ATTITUDE_S),
                ("rates", _RATES_S),
                ("velocity", _VELOCITY_S),
                ("height", _HEIGHT_S),
            )
        }
        self._euler = measurement.euler_rad.copy()
        self._rates = measurement.rates_rad_s.copy()
        self._velocity = np.zeros(3)
        rotation = level_rotation(*self._euler[:2])
        self._height = float(-(legs.toes_m @ rotation.T)[:, 2].mean())

    def update(
        self, measurement: Measurement, legs: LegState, standing: NDArray[np.bool_]
    ) -> Estimate:
        """Blend in one reading.

        Args:
            measurement: the sensors now.
            legs: kinematics of the measured joints.
            standing: (4,) boolean, the legs that should stand and do.
        """
        gain = self._gain
        self._rates += gain["rates"] * (measurement.rates_rad_s - self._rates)
        rates = self._rates
        roll, pitch = self._euler[:2]
        # Euler-angle rates from base-frame angular velocity.
        turn = np.sin(roll) * rates[1] + np.cos(roll) * rates[2]
        euler_rates = np.array(
            [
                rates[0] + np.tan(pitch) * turn,
                np.cos(roll) * rates[1] - np.sin(roll) * rates[2],
                turn / np.cos(pitch),
            ]
        )
        # A compass jumps by a turn at south; the filter's yaw stays beside it.
        turns = np.round((self._euler[2] - measurement.euler_rad[2]) / (2 * np.pi))
        self._euler[2] -= 2 * np.pi * turns
        predicted = self._euler + self._step_s * euler_rates
        self._euler = predicted + gain["attitude"] * (measurement.euler_rad - predicted)
        rotation = level_rotation(*self._euler[:2])
        toes = legs.toes_m @ rotation.T
        if standing.any():
            speeds = np.matmul(legs.jacobian, measurement.joint_speeds_rad_s[:, :, None])[:, :, 0]
            x, y, z = legs.toes_m.T
            wx, wy, wz = rates
            speeds += np.column_stack([wy * z - wz * y, wz * x - wx * z, wx * y - wy * x])
            # A toe is a ball: its centre moves as it rolls, by radius times the shank's turning.
            speeds[:, 0] -= TOE_RADIUS_M * (wy + measurement.joint_speeds_rad_s[:, 1:].sum(1))
            base = -(rotation @ speeds[standing].mean(0))
            self._velocity += gain["velocity"] * (base - self._velocity)
            self._height += gain["height"] * (-toes[standing, 2].mean() - self._height)
        return Estimate(
            euler_rad=self._euler.copy(),
            rotation=rotation,
            rates_rad_s=rotation @ rates,
            velocity_m_s=self._velocity.copy(),
            height_m=self._height,
            toes_m=toes,
        )
