"""A straight path of stones that lie to its sides and have irregular outlines."""

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.expert import action_share, best_footholds, centring_m_s
from envs.stepping_stones.locomotion import FootholdCommand
from envs.stepping_stones.robot import RobotState
from envs.stepping_stones.straight_course import StraightCourse
from envs.stepping_stones.terrain import Boxes
from envs.stepping_stones.turned_stones import TurnedStones, near_boxes

Floats = NDArray[np.float64]

_NEAR_M = 1.5  # stones within it are all that a foot can reach
_LOOK_AHEAD_M = 0.2


class IrregularCourse(StraightCourse):
    """Stones along world x. The path's middle leads from the middle of each stone to the next.

    Args:
        config: the environment's settings.
        stones: the row.
    """

    stones: TurnedStones  # type: ignore[assignment]

    def __init__(self, config: SteppingStonesConfig, stones: TurnedStones) -> None:
        super().__init__(config, stones)  # type: ignore[arg-type]

    def _middle_m(self, x_m: Floats | float) -> Floats:
        """World y of the path's middle at x."""
        return np.asarray(np.interp(x_m, *self.stones.centre_m.T))

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        low, high = (side.copy() for side in clutter_m)
        middle = self._middle_m((low + high)[:, 0] / 2)
        low[:, 1] += middle
        high[:, 1] += middle
        stones = self.stones
        return (
            np.concatenate([stones.low_m, low]),
            np.concatenate([stones.high_m, high]),
            np.concatenate([stones.yaw_rad, np.zeros(len(low))]),
        )

    def near(self, boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
        return near_boxes(boxes, position_m, reach_m)

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        footholds = np.stack(self.nominal_m(state), -1) + command.offsets_m
        return self.stones.near(state.position_m[:2], _NEAR_M).margin_m(footholds)

    def aside_m(self, position_m: Floats) -> float:
        return float(position_m[1] - self._middle_m(position_m[0]))

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        x, y, _ = state.position_m
        scale = self._scale * (1, self._config.action_legs == "all")
        stones = self.stones.near(state.position_m[:2], _NEAR_M)
        offsets = best_footholds(stones, np.stack(self.nominal_m(state), -1), 0.0, scale)
        action = np.zeros(9, np.float32)
        action[:8] = (offsets / np.where(scale > 0, scale, 1.0)).T.ravel()
        speed = centring_m_s(y - float(self._middle_m(x + _LOOK_AHEAD_M)))
        action[8] = action_share(speed, self._config.lateral_speed_m_s)
        return action
