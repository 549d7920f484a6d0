"""The straight row of stones, walked ahead at the gait's own speed."""

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled
from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.expert import action_share, expert_footholds
from envs.stepping_stones.locomotion import FootholdCommand, Locomotion
from envs.stepping_stones.robot import RobotState
from envs.stepping_stones.sensors import Measurement
from envs.stepping_stones.terrain import Boxes, Stones

Floats = NDArray[np.float64]


class StraightCourse:
    """A straight row of stones along world x.

    Args:
        config: the environment's settings.
        stones: the row.
    """

    is_over = False

    def __init__(self, config: SteppingStonesConfig, stones: Stones) -> None:
        self._config, self.stones = config, stones
        self._scale = np.array([config.foothold_forward_m, config.foothold_lateral_m])

    def begin(self, measurement: Measurement) -> Locomotion:
        self._locomotion, self._along_m = Locomotion(measurement), 0.0
        return self._locomotion

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        low, high = clutter_m
        stones = self.stones
        return np.concatenate([stones.low_m, low]), np.concatenate([stones.high_m, high]), None

    def near(self, boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
        low, high, _ = boxes
        behind, ahead = reach_m
        return *_between(low, high, position_m[0] - behind, position_m[0] + ahead), None

    def command(self, action: Floats) -> FootholdCommand:
        return FootholdCommand(
            action[:8].reshape(2, 4).T * self._scale,
            float(action[8]) * self._config.lateral_speed_m_s,
        )

    def nominal_m(self, state: RobotState) -> tuple[Floats, Floats]:
        """World x and y (4,) of the uncorrected footholds of legs that would lift off now."""
        nominal = self._locomotion.nominal_footholds_m()
        cos, sin = np.cos(state.euler_rad[2]), np.sin(state.euler_rad[2])
        x: Floats = cos * nominal[:, 0] - sin * nominal[:, 1]
        y: Floats = sin * nominal[:, 0] + cos * nominal[:, 1]
        return x + state.position_m[0], y + state.position_m[1]

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        x, y = self.nominal_m(state)
        margin = self.stones.margin_m(x + command.offsets_m[:, 0])
        if not self._config.margin_across:
            return margin
        side: Floats = self.stones.width_m / 2 - np.abs(y + command.offsets_m[:, 1])
        return np.minimum(margin, side)

    def aside_m(self, position_m: Floats) -> float:
        return float(position_m[1])

    def advance(self, position_m: Floats) -> float:
        before, self._along_m = self._along_m, float(position_m[0])
        return self._along_m - before

    def distance_m(self) -> float:
        return self._along_m

    def has_succeeded(self) -> bool:
        return self._along_m >= self._config.success_distance_m

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        offsets, speed = expert_footholds(
            self.stones, self.nominal_m(state)[0], state.position_m[1]
        )
        action = np.zeros(9, np.float32)
        action[:4] = np.clip(offsets / self._config.foothold_forward_m, -1, 1)
        action[8] = action_share(speed, self._config.lateral_speed_m_s)
        return action

    def observed(self) -> Floats:
        return np.zeros(0)

    def view(self, position_m: Floats) -> tuple[Floats, float]:
        return np.array([position_m[0] + 0.1, 0.0]), 0.0


@compiled
def _between(low: Floats, high: Floats, least_m: float, most_m: float) -> tuple[Floats, Floats]:
    """The boxes that reach into a range of x."""
    near = (high[:, 0] > least_m) & (low[:, 0] < most_m)
    return low[near], high[near]
