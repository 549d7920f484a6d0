"""State estimation from the inertial unit, the encoders and the foot switches.

Attitude: a complementary filter (gyroscope integrated, absolute angles blended in). Velocity: the
standing feet do not move, so the base moves by minus their velocity in the base frame; averaged
over the standing feet and low-passed. Height: the base above the mean standing foot.
"""

from collections.abc import Sequence
from math import cos, pi, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.kinematics import TOE_RADIUS_M, LegState
from envs.stepping_stones.sensors import Measurement

__all__ = ["Estimate", "StateEstimator", "level_rotation"]

Floats = NDArray[np.float64]

_ATTITUDE_S, _RATES_S, _VELOCITY_S, _HEIGHT_S = 0.10, 0.01, 0.02, 0.05  # time constants


class Estimate(NamedTuple):
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
    cr, sr, cp, sp = cos(roll_rad), sin(roll_rad), cos(pitch_rad), sin(pitch_rad)
    return np.array([cp, sp * sr, sp * cr, 0.0, cr, -sr, -sp, cp * sr, cp * cr]).reshape(3, 3)


class StateEstimator:
    """Filters measurements into an `Estimate`.

    Args:
        measurement: the first reading.
        legs: kinematics at that reading.
        step_s: time between readings, seconds.
    """

    def __init__(self, measurement: Measurement, legs: LegState, step_s: float) -> None:
        self._step_s = step_s
        self._attitude, self._rate, self._speed, self._rise = (
            step_s / (constant + step_s)
            for constant in (_ATTITUDE_S, _RATES_S, _VELOCITY_S, _HEIGHT_S)
        )  # shares of the new reading
        self._euler: list[float] = measurement.euler_rad.tolist()
        self._rates: list[float] = measurement.rates_rad_s.tolist()
        self._velocity = [0.0, 0.0, 0.0]
        rotation = level_rotation(*self._euler[:2])
        self._height = float(-(legs.toes_m @ rotation.T)[:, 2].mean())

    def update(self, measurement: Measurement, legs: LegState, standing: Sequence[int]) -> Estimate:
        """Blend in one reading.

        Args:
            measurement: the sensors now.
            legs: kinematics of the measured joints.
            standing: the legs that should stand and do.
        """
        rates = self._rates = _blend(self._rates, measurement.rates_rad_s.tolist(), self._rate)
        self._turn(rates, measurement.euler_rad.tolist())
        rotation = level_rotation(*self._euler[:2])
        toes = legs.toes_m.dot(rotation.T)
        if standing:
            speed = _base_speed(measurement.joint_speeds_rad_s, legs, rates, standing)
            self._velocity = _blend(self._velocity, rotation.dot(speed).tolist(), self._speed)
            below = toes.tolist()
            height = 0.0
            for leg in standing:
                height -= below[leg][2]
            self._height += self._rise * (height / len(standing) - self._height)
        return Estimate(
            euler_rad=np.array(self._euler),
            rotation=rotation,
            rates_rad_s=rotation.dot(np.array(rates)),
            velocity_m_s=np.array(self._velocity),
            height_m=self._height,
            toes_m=toes,
        )

    def _turn(self, rates: Sequence[float], measured: Sequence[float]) -> None:
        """Integrate the angular velocity in the base frame, and blend in the absolute angles."""
        roll, pitch, yaw = self._euler
        # Euler-angle rates from base-frame angular velocity.
        wx, wy, wz = rates
        cos_roll, sin_roll = cos(roll), sin(roll)
        turn = sin_roll * wy + cos_roll * wz
        roll_rate = wx + float(np.tan(pitch)) * turn
        pitch_rate = cos_roll * wy - sin_roll * wz
        # A compass jumps by a turn at south; the filter's yaw stays beside it.
        turns = (yaw - measured[2]) / (2 * pi)
        if abs(turns) > 0.5:
            yaw -= 2 * pi * round(turns)
        step = self._step_s
        predicted = (
            roll + step * roll_rate,
            pitch + step * pitch_rate,
            yaw + step * (turn / cos(pitch)),
        )
        self._euler = _blend(predicted, measured, self._attitude)


def _base_speed(
    joint_speeds_rad_s: Floats, legs: LegState, rates: Sequence[float], standing: Sequence[int]
) -> Floats:
    """Velocity (3,), base frame, of a base whose standing toes do not move, their mean."""
    toes, joint_speeds = legs.toes_m.tolist(), joint_speeds_rad_s.tolist()
    wx, wy, wz = rates
    total_x = total_y = total_z = 0.0
    for leg in standing:
        (x, y, z), (_, hip, knee) = toes[leg], joint_speeds[leg]
        speed_x, speed_y, speed_z = legs.jacobian[leg].dot(joint_speeds_rad_s[leg]).tolist()
        # A toe is a ball: its centre moves as it rolls, by radius times the shank's turning.
        total_x -= speed_x + (wy * z - wz * y) - TOE_RADIUS_M * (wy + (hip + knee))
        total_y -= speed_y + (wz * x - wx * z)
        total_z -= speed_z + (wx * y - wy * x)
    count = len(standing)
    return np.array([total_x / count, total_y / count, total_z / count])


def _blend(old: Sequence[float], new: Sequence[float], share: float) -> list[float]:
    (x, y, z), (to_x, to_y, to_z) = old, new
    return [x + share * (to_x - x), y + share * (to_y - y), z + share * (to_z - z)]
