"""State estimation from the inertial unit, the encoders and the foot switches.

Attitude: a complementary filter (gyroscope integrated, absolute angles blended in). Velocity: the
standing feet do not move, so the base moves by minus their velocity in the base frame; averaged
over the standing feet and low-passed. Height: the base above the mean standing foot.
"""

from math import cos, pi, sin, tan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled
from envs.stepping_stones.kinematics import TOE_RADIUS_M, forward, toes_and_jacobians
from envs.stepping_stones.sensors import Measurement

Floats = NDArray[np.float64]

_ATTITUDE_S, _RATES_S, _VELOCITY_S, _HEIGHT_S = 0.10, 0.01, 0.02, 0.05  # time constants


class Estimate(NamedTuple):
    """The body as the robot believes it to be; vectors in the level frame.

    Attributes:
        values: (70,) the properties below in this order, then (3,) the angular velocity in the
            base frame and (4, 3, 3) the Jacobians of the measured legs, see `LegState`.
    """

    values: Floats

    @property
    def euler_rad(self) -> Floats:
        """(3,) roll, pitch, yaw."""
        return self.values[:3]

    @property
    def rates_rad_s(self) -> Floats:
        """(3,) angular velocity."""
        return self.values[3:6]

    @property
    def velocity_m_s(self) -> Floats:
        """(3,) velocity."""
        return self.values[6:9]

    @property
    def height_m(self) -> float:
        """Height of the base above the standing toes' centres."""
        return float(self.values[9])

    @property
    def toes_m(self) -> Floats:
        """(4, 3) toe centres."""
        return self.values[10:22].reshape(4, 3)

    @property
    def rotation(self) -> Floats:
        """(3, 3) base-to-level rotation (roll and pitch)."""
        return self.values[22:31].reshape(3, 3)


class StateEstimator:
    """Filters measurements into an `Estimate`.

    Args:
        measurement: the first reading.
        step_s: time between readings, seconds.
    """

    def __init__(self, measurement: Measurement, step_s: float) -> None:
        constants = (_ATTITUDE_S, _RATES_S, _VELOCITY_S, _HEIGHT_S)
        self._step_s, self._shares = step_s, tuple(step_s / (of + step_s) for of in constants)
        euler, rates = measurement.values[:3], measurement.values[3:6]
        rotation = level_rotation(*euler[:2].tolist())
        self._values = np.zeros(70)
        self._values[:3], self._values[31:34] = euler, rates
        self._values[9] = -(forward(measurement.joints_rad).toes_m @ rotation.T)[:, 2].mean()

    def update(self, measurement: Measurement, stands: tuple[bool, ...]) -> Estimate:
        """Blend in one reading.

        Args:
            measurement: the sensors now.
            stands: whether each leg should stand and has contact.
        """
        self._values = _filtered(
            self._values,
            measurement.values,
            stands,
            self._shares,
            self._step_s,
            TOE_RADIUS_M,
        )
        return Estimate(self._values)


@compiled
def level_rotation(roll_rad: float, pitch_rad: float) -> Floats:
    """Rotation (3, 3) from the base frame to the level frame: the attitude without its yaw."""
    cr, sr, cp, sp = cos(roll_rad), sin(roll_rad), cos(pitch_rad), sin(pitch_rad)
    return np.array([[cp, sp * sr, sp * cr], [0.0, cr, -sr], [-sp, cp * sr, cp * cr]])


@compiled
def _turn(turned: Floats, rotation: Floats, vector: Floats) -> None:
    """Set (3,) to (3, 3) times (3,); Numba's own product needs SciPy."""
    x, y, z = vector
    for axis in range(3):
        turned[axis] = rotation[axis, 0] * x + rotation[axis, 1] * y + rotation[axis, 2] * z


@compiled
def _filtered(
    values: Floats,
    measured: Floats,
    stands: tuple[bool, ...],
    shares: tuple[float, ...],
    step_s: float,
    toe_radius_m: float,
) -> Floats:
    """The values (70,) of an `Estimate` after a reading, the values (30,) of a `Measurement`."""
    of_euler, of_rates, of_velocity, of_height = shares
    euler_rad, rates_rad_s, joint_speeds_rad_s = measured[:3], measured[3:6], measured[18:]
    toes_m, jacobian = toes_and_jacobians(measured[6:18].reshape(4, 3))
    values = values.copy()
    euler, velocity, rates = values[:3], values[6:9], values[31:34]
    values[34:] = jacobian.ravel()
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
    values[22:31] = rotation.ravel()
    _turn(values[3:6], rotation, rates)
    level_toes = values[10:22].reshape(4, 3)
    for leg in range(4):
        _turn(level_toes[leg], rotation, toes_m[leg])

    count = 0
    speed, height = np.zeros(3), 0.0  # of a base whose standing toes do not move, summed over them
    for leg in range(4):
        if stands[leg]:
            count += 1
            height -= level_toes[leg, 2]
            x, y, z = toes_m[leg]
            _, hip, knee = joint_speeds_rad_s[3 * leg : 3 * leg + 3]
            for joint in range(3):
                for axis in range(3):
                    speed[axis] -= jacobian[leg, axis, joint] * joint_speeds_rad_s[3 * leg + joint]
            # A toe is a ball: its centre moves as it rolls, by radius times the shank's turning.
            speed[0] -= wy * z - wz * y - toe_radius_m * (wy + hip + knee)
            speed[1] -= wz * x - wx * z
            speed[2] -= wx * y - wy * x
    if count:
        speed /= count
        level_speed = np.empty(3)
        _turn(level_speed, rotation, speed)
        velocity += of_velocity * (level_speed - velocity)
        values[9] += of_height * (height / count - values[9])
    return values
