"""The commanded speed: always forward, or forward, a stop, and backward to the start."""

from envs.stepping_stones.config import DECISION_S

_FORWARD_M_S, _BACKWARD_M_S = 0.5, -0.4
_STOP_S, _BACK_TO_M = 1.0, 0.3


class Schedule:
    """The commanded speed of an episode, decision by decision.

    Args:
        turn_at_m: arc length at which the robot stops and then walks backward; infinity: it never
            does.

    Attributes:
        speed_m_s: commanded now.
        distance_m: that the robot has come, out and back.
        is_back: whether it has come back to 0.3 m from where it started.
    """

    def __init__(self, turn_at_m: float) -> None:
        self._turn_at_m, self._stop = turn_at_m, round(_STOP_S / DECISION_S)
        self._along_m = 0.0
        self.speed_m_s, self.distance_m, self.is_back = _FORWARD_M_S, 0.0, False

    def advance(self, along_m: float) -> float:
        """Take in the arc length after a decision; metres come in the commanded direction."""
        sign = (self.speed_m_s > 0) - (self.speed_m_s < 0)
        progress = sign * (along_m - self._along_m)
        self.distance_m += progress
        self._along_m = along_m
        if self.speed_m_s > 0 and along_m >= self._turn_at_m:
            self.speed_m_s = 0.0
        elif self.speed_m_s == 0:
            self._stop -= 1
            self.speed_m_s = 0.0 if self._stop > 0 else _BACKWARD_M_S
        elif self.speed_m_s < 0:
            self.is_back = self.is_back or along_m <= _BACK_TO_M
        return progress
