"""State estimation from the inertial unit, the encoders and the foot switches.

Attitude: a complementary filter (gyroscope integrated, absolute angles blended in). Velocity: the
standing feet do not move, so the base moves by minus their velocity in the base frame; averaged
over the standing feet and low-passed. Height: the base above the mean standing foot.
"""

from collections.abc import Sequence
from math import cos, pi, sin, tan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled
from envs.stepping_stones.kinematics import TOE_RADIUS_M, LegState
from envs.stepping_stones.sensors import Measurement

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


class StateEstimator:
    """Filters measurements into an `Estimate`.

    Args:
        measurement: the first reading.
        legs: kinematics at that reading.
        step_s: time between readings, seconds.
    """

    def __init__(self, measurement: Measurement, legs: LegState, step_s: float) -> None:
        constants = (_ATTITUDE_S, _RATES_S, _VELOCITY_S, _HEIGHT_S)
        self._step_s, self._shares = step_s, tuple(step_s / (of + step_s) for of in constants)
        rotation = level_rotation(*measurement.euler_rad[:2].tolist())
        height = float(-(legs.toes_m @ rotation.T)[:, 2].mean())
        rates, still = measurement.rates_rad_s, np.zeros(3)
        self._body = np.concatenate([measurement.euler_rad, rates, still, [height]])

    def update(self, measurement: Measurement, legs: LegState, standing: Sequence[int]) -> Estimate:
        """Blend in one reading.

        Args:
            measurement: the sensors now.
            legs: kinematics of the measured joints.
            standing: the legs that should stand and have contact.
        """
        self._body, rotation, rates, toes = _filtered(
            self._body,
            measurement.euler_rad,
            measurement.rates_rad_s,
            measurement.joint_speeds_rad_s,
            legs.toes_m,
            legs.jacobian,
            (0 in standing, 1 in standing, 2 in standing, 3 in standing),
            self._shares,
            self._step_s,
            TOE_RADIUS_M,
        )
        return Estimate(
            euler_rad=self._body[:3],
            rotation=rotation,
            rates_rad_s=rates,
            velocity_m_s=self._body[6:9],
            height_m=float(self._body[9]),
            toes_m=toes,
        )


@compiled
def level_rotation(roll_rad: float, pitch_rad: float) -> Floats:
    """Rotation (3, 3) from the base frame to the level frame: the attitude without its yaw."""
    cr, sr, cp, sp = cos(roll_rad), sin(roll_rad), cos(pitch_rad), sin(pitch_rad)
    return np.array([[cp, sp * sr, sp * cr], [0.0, cr, -sr], [-sp, cp * sr, cp * cr]])


@compiled
def _turned(rotation: Floats, vector: Floats) -> Floats:
    """(3, 3) times (3,); Numba's own product needs SciPy."""
    x, y, z = vector
    return rotation[:, 0] * x + rotation[:, 1] * y + rotation[:, 2] * z


@compiled
def _filtered(
    body: Floats,
    euler_rad: Floats,
    rates_rad_s: Floats,
    joint_speeds_rad_s: Floats,
    toes_m: Floats,
    jacobian: Floats,
    stands: tuple[bool, ...],
    shares: tuple[float, ...],
    step_s: float,
    toe_radius_m: float,
) -> tuple[Floats, Floats, Floats, Floats]:
    """The body after a reading, the rotation to the level frame, and rates and toes in it.

    A body is (10,): roll, pitch and yaw, rates in the base frame, velocity, height.
    """
    of_euler, of_rates, of_velocity, of_height = shares
    body = body.copy()
    euler, rates, velocity = body[:3], body[3:6], body[6:9]
    rates += of_rates * (rates_rad_s - rates)

    # Integrate the angular velocity in the base frame, and blend in the absolute angles.
    roll, pitch, yaw = euler
    wx, wy, wz = rates
    turn = sin(roll) * wy + cos(roll) * wz
    # A compass jumps by a turn at south; the filter's yaw stays beside it.
    turns = (yaw - euler_rad[2]) / (2 * pi)
    if abs(turns) > 0.5:
        euler[2] -= 2 * pi * np.rint(turns)
    euler[0] += step_s * (wx + tan(pitch) * turn)
    euler[1] += step_s * (cos(roll) * wy - sin(roll) * wz)
    euler[2] += step_s * (turn / cos(pitch))
    euler += of_euler * (euler_rad - euler)

    rotation = level_rotation(euler[0], euler[1])
    level_rates, level_toes = _turned(rotation, rates), np.empty((4, 3))
    for leg in range(4):
        level_toes[leg] = _turned(rotation, toes_m[leg])

    count = 0
    speed, height = np.zeros(3), 0.0  # of a base whose standing toes do not move, summed over them
    for leg in range(4):
        if stands[leg]:
            count += 1
            height -= level_toes[leg, 2]
            x, y, z = toes_m[leg]
            _, hip, knee = joint_speeds_rad_s[leg]
            for joint in range(3):
                speed -= jacobian[leg, :, joint] * joint_speeds_rad_s[leg, joint]
            # A toe is a ball: its centre moves as it rolls, by radius times the shank's turning.
            speed[0] -= wy * z - wz * y - toe_radius_m * (wy + hip + knee)
            speed[1] -= wz * x - wx * z
            speed[2] -= wx * y - wy * x
    if count:
        speed /= count
        velocity += of_velocity * (_turned(rotation, speed) - velocity)
        body[9] += of_height * (height / count - body[9])
    return body, rotation, level_rates, level_toes
