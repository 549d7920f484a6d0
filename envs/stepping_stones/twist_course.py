"""Stones along a path that turns, or leads out and back, walked by a commanded twist."""

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.expert import action_share, best_footholds, steer
from envs.stepping_stones.locomotion import FootholdCommand, Locomotion
from envs.stepping_stones.path import Path
from envs.stepping_stones.robot import RobotState
from envs.stepping_stones.schedule import Schedule
from envs.stepping_stones.sensors import Measurement
from envs.stepping_stones.terrain import Boxes
from envs.stepping_stones.turned_stones import TurnedStones, near_boxes
from envs.stepping_stones.twist import TwistCommand, TwistLocomotion, turn

Floats = NDArray[np.float64]

_NEAR_M = 1.5  # stones within it are all that a foot can reach


class TwistCourse:
    """Stones along a path that may turn, followed ahead, or out and back.

    Args:
        config: the environment's settings.
        path: where the stones lie.
        stones: along it.
    """

    def __init__(self, config: SteppingStonesConfig, path: Path, stones: TurnedStones) -> None:
        self._config, self.path, self.stones = config, path, stones
        self._scale = np.array([config.foothold_forward_m, config.foothold_lateral_m])
        self._schedule = Schedule(config.success_distance_m if config.walk_back else np.inf)

    @property
    def is_over(self) -> bool:
        return self._schedule.is_back

    def begin(self, measurement: Measurement) -> Locomotion:
        still = TwistCommand(np.zeros((4, 2)), 0.0, self._schedule.speed_m_s, 0.0)
        self._locomotion = TwistLocomotion(measurement, still)
        return self._locomotion

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        low, high, stones = *clutter_m, self.stones
        middle, half = (low + high) / 2, (high - low) / 2
        point, heading = self.path.at(middle[:, 0])
        left = np.stack([-np.sin(heading), np.cos(heading)], -1)
        centre = np.column_stack([point + middle[:, 1:2] * left, middle[:, 2]])
        return (
            np.concatenate([stones.low_m, centre - half]),
            np.concatenate([stones.high_m, centre + half]),
            np.concatenate([stones.yaw_rad, heading]),
        )

    def near(self, boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
        return near_boxes(boxes, position_m, reach_m)

    def command(self, action: Floats) -> TwistCommand:
        rate = float(action[9]) * self._config.yaw_rate_rad_s if self._config.turns else 0.0
        return TwistCommand(
            action[:8].reshape(2, 4).T * self._scale,
            float(action[8]) * self._config.lateral_speed_m_s,
            self._schedule.speed_m_s,
            rate,
        )

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        assert isinstance(command, TwistCommand)
        nominal, heading = self._nominal_m(command, state)
        footholds = nominal + command.offsets_m @ turn(heading).T
        return self.stones.near(state.position_m[:2], _NEAR_M).margin_m(footholds)

    def _nominal_m(self, command: TwistCommand, state: RobotState) -> tuple[Floats, float]:
        """World (4, 2) of the uncorrected footholds, and the heading that offsets are along."""
        yaw = float(state.euler_rad[2])
        nominal = self._locomotion.nominal_footholds_m(command) @ turn(yaw).T
        heading = yaw + command.yaw_rate_rad_s * self._locomotion.gait.swing_s
        return nominal + state.position_m[:2], heading

    def aside_m(self, position_m: Floats) -> float:
        return self.path.place(position_m).aside_m

    def advance(self, position_m: Floats) -> float:
        return self._schedule.advance(self.path.place(position_m).along_m)

    def distance_m(self) -> float:
        return self._schedule.distance_m

    def has_succeeded(self) -> bool:
        if self._config.walk_back:
            return self._schedule.is_back
        return self._schedule.distance_m >= self._config.success_distance_m

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        config, speed = self._config, self._schedule.speed_m_s
        lateral, rate = steer(self.path, state, speed)
        action = np.zeros(config.action_size, np.float32)
        action[8] = action_share(lateral, config.lateral_speed_m_s)
        if config.turns:
            action[9] = action_share(rate, config.yaw_rate_rad_s)
        nominal, heading = self._nominal_m(self.command(action.astype(float)), state)
        stones = self.stones.near(state.position_m[:2], _NEAR_M)
        offsets = best_footholds(stones, nominal, heading, self._scale)
        action[:8] = (offsets / np.where(self._scale > 0, self._scale, 1.0)).T.ravel()
        return action

    def observed(self) -> Floats:
        yaw = self._locomotion.estimate.euler_rad[2]
        return np.array(
            [*self._locomotion.odometry_m, np.sin(yaw), np.cos(yaw), self._schedule.speed_m_s]
        )

    def view(self, position_m: Floats) -> tuple[Floats, float]:
        place = self.path.place(position_m)
        return self.path.at(place.along_m + 0.1)[0], place.heading_rad
