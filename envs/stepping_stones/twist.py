"""Walking by a twist: a commanded forward, lateral and turning speed, backward too.

The straight row's `Locomotion` walks ahead at the gait's own speed along world x. Here speed v and
yaw rate w are commanded, and footholds turn with the body. T is the swing's time.

    foothold = R(w T_stance / 2) nominal + [(v - b) T / 2, 0.20 v_y - 0.05 u_y - 1.3 h v w / g]

from the measured and the commanded lateral speed v_y and u_y, the body's height h and gravity g; b
is 0 ahead and 0.1 m/s backward. The last term carries the body through a turn.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.gait import Trot
from envs.stepping_stones.locomotion import (
    CONTROL_S,
    HEIGHT_M,
    LATERAL_RAIBERT_M,
    LATERAL_RAIBERT_S,
    NOMINAL_TOES_M,
    SPEED_LIMIT_M_S,
    YAW_RATE_LIMIT_RAD_S,
    FootholdCommand,
    Locomotion,
)
from envs.stepping_stones.sensors import Measurement
from envs.stepping_stones.stance_mpc import GRAVITY_M_S2

Floats = NDArray[np.float64]

_COMMANDED_S = 0.05
_CENTRIPETAL = 1.3  # without it the body drifts out of the turn, 8 cm/s at 0.6 rad/s
_REVERSE_BIAS_M_S = 0.1  # backward the trot lags by so much
_STOPPING_M_S = 0.25
_REVERSE_SHARE = 0.8  # of the commanded speed that short steps at a gap do not fall below


@dataclass(frozen=True)
class TwistCommand(FootholdCommand):
    """Footholds and the body's twist until the policy's next decision.

    Attributes:
        forward_speed_m_s: desired speed ahead, negative backward; 0 stops.
        yaw_rate_rad_s: desired turning, left positive.
    """

    forward_speed_m_s: float
    yaw_rate_rad_s: float


def turn(angle_rad: float) -> Floats:
    """(2, 2) rotation to the left."""
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[cos, -sin], [sin, cos]])


def wrapped(angle_rad: float) -> float:
    """The same direction in [-pi, pi)."""
    return float((angle_rad + np.pi) % (2 * np.pi) - np.pi)


class TwistLocomotion(Locomotion):
    """The walking controller of one episode of paths that turn or lead back.

    Args:
        measurement: the sensors at the start.
        command: the command until the first decision. gait: its clock starts at 0.

    Attributes:
        odometry_m: Estimated displacement (2,) in the world: the integrated velocity.
    """

    def __init__(
        self, measurement: Measurement, command: TwistCommand, gait: Trot | None = None
    ) -> None:
        super().__init__(measurement, gait)
        self._command = command
        self._heading_rad = 0.0
        self.odometry_m = np.zeros(2)

    def nominal_footholds_m(self, command: TwistCommand | None = None) -> Floats:
        """(4, 2) where each leg would land if it lifted off now uncorrected, under a command (by
        default the last one), from the present base, level frame."""
        command = command or self._command
        angle = command.yaw_rate_rad_s * self.gait.swing_s
        ahead = turn(angle / 2) @ (self.estimate.velocity_m_s[:2] * self.gait.swing_s)
        landing: Floats = self._landing_m(command)[:, :2] @ turn(angle).T + ahead
        return landing

    def sense(self, measurement: Measurement) -> None:
        """Take in the sensors after a control step."""
        super().sense(measurement)
        yaw = self.estimate.euler_rad[2]
        self.odometry_m += CONTROL_S * (turn(yaw) @ self.estimate.velocity_m_s[:2])

    def torques(self, command: FootholdCommand) -> Floats:
        """(4, 3) joint torques for the coming control step, newton metres."""
        assert isinstance(command, TwistCommand)
        self._command = command
        self._heading_rad += CONTROL_S * command.yaw_rate_rad_s
        return super().torques(command)

    def _uncorrected_m(self) -> Floats:
        return self._landing_m(self._command)

    def _landing_m(self, command: TwistCommand) -> Floats:
        """(4, 3) landing points in the level frame that the base will have at landing."""
        speed, rate = command.forward_speed_m_s, command.yaw_rate_rad_s
        bias = _REVERSE_BIAS_M_S if speed < 0 else 0.0
        foothold = NOMINAL_TOES_M.copy()
        foothold[:, :2] = foothold[:, :2] @ turn(rate * self.gait.stance_s / 2).T
        foothold[:, 0] += (speed - bias) * self.gait.swing_s / 2
        lateral = LATERAL_RAIBERT_S * self.estimate.velocity_m_s[1]
        lateral -= _COMMANDED_S * command.lateral_speed_m_s
        lateral -= _CENTRIPETAL * HEIGHT_M / GRAVITY_M_S2 * speed * rate
        foothold[:, 1] += min(max(lateral, -LATERAL_RAIBERT_M), LATERAL_RAIBERT_M)
        return foothold

    def _limited_speed_m_s(self, wanted_m_s: float) -> float:
        speed = self._command.forward_speed_m_s
        if speed == 0:  # held at 0, feet that avoid a gap and forces would pull apart
            return min(max(wanted_m_s, -_STOPPING_M_S), _STOPPING_M_S)
        if speed > 0:
            return min(max(wanted_m_s, 0.0), SPEED_LIMIT_M_S)
        # Short steps at a gap ask for no speed: backward, the robot would march on the spot.
        return min(max(wanted_m_s, -SPEED_LIMIT_M_S), _REVERSE_SHARE * speed)

    def _wanted_yaw_rate_rad_s(self) -> float:
        """The commanded rate, with a correction of the heading error."""
        limit, yaw = YAW_RATE_LIMIT_RAD_S, float(self.estimate.values[2])
        lacking = min(max(wrapped(self._heading_rad - yaw), -limit), limit)
        self._heading_rad = yaw + lacking  # larger errors are ignored
        return self._command.yaw_rate_rad_s + lacking

    @property
    def _turns(self) -> bool:
        return True
