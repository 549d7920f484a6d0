"""What an episode asks of the robot: the stones' way, how far along it is, and what an expert does.

`StraightCourse` is the row of stones of the paper. `TwistCourse` follows a path that turns, or leads
out and back, by a commanded twist.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.expert import best_footholds, expert_footholds, steer
from envs.stepping_stones.locomotion import FootholdCommand, Locomotion
from envs.stepping_stones.path import Path
from envs.stepping_stones.robot import RobotState
from envs.stepping_stones.schedule import Schedule
from envs.stepping_stones.sensors import Measurement
from envs.stepping_stones.terrain import Stones, draw_stones
from envs.stepping_stones.turned_stones import TurnedStones, lay_stones
from envs.stepping_stones.twist import TwistCommand, TwistLocomotion, turn

__all__ = ["Course", "StraightCourse", "TwistCourse", "draw_course"]

Floats = NDArray[np.float64]
Boxes = tuple[Floats, Floats, Floats | None]
"""Lower and upper corners (boxes, 3), metres, and the boxes' turns (boxes,), radians; None: 0."""

_NEAR_M = 1.5  # stones within it are all that a foot can reach


class Course(Protocol):
    """What the environment asks of an episode's course."""

    @property
    def stones(self) -> Stones | TurnedStones:
        """The stones."""

    @property
    def is_over(self) -> bool:
        """Whether what is asked has been done, before the time is up."""

    def begin(self, measurement: Measurement) -> Locomotion:
        """The walking controller of the episode."""

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        """Stones, then clutter, whose corners are given by the path, in the world."""

    def near(self, boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
        """Those that are no farther from the base than so far behind and ahead."""

    def command(self, action: Floats) -> FootholdCommand:
        """What an action asks for."""

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        """(4,) how far inside a stone each leg would land that lifted off now."""

    def advance(self, position_m: Floats) -> float:
        """Metres that the robot has come ahead since the last decision, or at first since it stood;
        backward, where that is asked."""

    def distance_m(self) -> float:
        """How far the robot has come so far."""

    def has_succeeded(self) -> bool:
        """Whether that is enough, where the episode ends now without a fall."""

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        """The scripted expert's action; it knows the stones."""

    def told(self) -> Floats:
        """What proprioception has beside the straight row's."""

    def view(self, position_m: Floats) -> tuple[Floats, float]:
        """A point (2,) to look at, and the direction there, for pictures."""


def draw_course(
    config: SteppingStonesConfig, gap_m: tuple[float, float], rng: np.random.Generator
) -> Course:
    """A random course; of one `rng` all have stones and gaps of the same lengths."""
    if not config.commands_twist:
        return StraightCourse(config, draw_stones(config, gap_m, rng))
    path = _draw_path(config, rng.spawn(1)[0])
    return TwistCourse(config, path, lay_stones(config, gap_m, path, rng))


def _draw_path(config: SteppingStonesConfig, rng: np.random.Generator) -> Path:
    radius_m, left = rng.uniform(*config.path_radius_m), rng.random() < 0.5
    sides = {"straight": 0.0, "left": 1.0, "right": -1.0, "random": 1.0 if left else -1.0}
    return Path(sides[config.path_turn] / radius_m)


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
        """See `Course`."""
        self._locomotion, self._along_m = Locomotion(measurement), 0.0
        return self._locomotion

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        """See `Course`."""
        low, high = clutter_m
        stones = self.stones
        return np.concatenate([stones.low_m, low]), np.concatenate([stones.high_m, high]), None

    def near(self, boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
        """See `Course`."""
        low, high, _ = boxes
        behind, ahead = reach_m
        near = (high[:, 0] > position_m[0] - behind) & (low[:, 0] < position_m[0] + ahead)
        return low[near], high[near], None

    def command(self, action: Floats) -> FootholdCommand:
        """See `Course`."""
        return FootholdCommand(
            action[:8].reshape(2, 4).T * self._scale,
            float(action[8]) * self._config.lateral_speed_m_s,
        )

    def nominal_x_m(self, state: RobotState) -> Floats:
        """(4,) world x of the uncorrected footholds of legs that would lift off now."""
        nominal = self._locomotion.nominal_footholds_m()
        yaw = state.euler_rad[2]
        x: Floats = np.cos(yaw) * nominal[:, 0] - np.sin(yaw) * nominal[:, 1]
        return x + state.position_m[0]

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        """See `Course`."""
        return self.stones.margin_m(self.nominal_x_m(state) + command.offsets_m[:, 0])

    def advance(self, position_m: Floats) -> float:
        """See `Course`."""
        before, self._along_m = self._along_m, float(position_m[0])
        return self._along_m - before

    def distance_m(self) -> float:
        """See `Course`."""
        return self._along_m

    def has_succeeded(self) -> bool:
        """See `Course`."""
        return self._along_m >= self._config.success_distance_m

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        """See `Course`."""
        offsets, speed = expert_footholds(
            self.stones, self.nominal_x_m(state), state.position_m[1]
        )
        action = np.zeros(9, np.float32)
        action[:4] = np.clip(offsets / self._config.foothold_forward_m, -1, 1)
        action[8] = _share(speed, self._config.lateral_speed_m_s)
        return action

    def told(self) -> Floats:
        """See `Course`."""
        return np.zeros(0)

    def view(self, position_m: Floats) -> tuple[Floats, float]:
        """See `Course`."""
        return np.array([position_m[0] + 0.1, 0.0]), 0.0


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
        """See `Course`."""
        return self._schedule.is_back

    def begin(self, measurement: Measurement) -> Locomotion:
        """See `Course`."""
        still = TwistCommand(np.zeros((4, 2)), 0.0, self._schedule.speed_m_s, 0.0)
        self._locomotion = TwistLocomotion(measurement, still)
        return self._locomotion

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        """See `Course`."""
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
        """See `Course`."""
        low, high, yaw = boxes
        assert yaw is not None
        away = np.hypot(*((low + high)[:, :2] / 2 - position_m[:2]).T)
        near = away < max(reach_m) + np.hypot(*(high - low)[:, :2].T) / 2
        return low[near], high[near], yaw[near]

    def command(self, action: Floats) -> TwistCommand:
        """See `Course`."""
        rate = float(action[9]) * self._config.yaw_rate_rad_s if self._config.turns else 0.0
        return TwistCommand(
            action[:8].reshape(2, 4).T * self._scale,
            float(action[8]) * self._config.lateral_speed_m_s,
            self._schedule.speed_m_s,
            rate,
        )

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        """See `Course`."""
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

    def advance(self, position_m: Floats) -> float:
        """See `Course`."""
        return self._schedule.advance(self.path.place(position_m).along_m)

    def distance_m(self) -> float:
        """See `Course`."""
        return self._schedule.distance_m

    def has_succeeded(self) -> bool:
        """See `Course`."""
        if self._config.walk_back:
            return self._schedule.is_back
        return self._schedule.distance_m >= self._config.success_distance_m

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        """See `Course`."""
        config, speed = self._config, self._schedule.speed_m_s
        lateral, rate = steer(self.path, state, speed)
        action = np.zeros(config.action_size, np.float32)
        action[8] = _share(lateral, config.lateral_speed_m_s)
        if config.turns:
            action[9] = _share(rate, config.yaw_rate_rad_s)
        nominal, heading = self._nominal_m(self.command(action.astype(float)), state)
        stones = self.stones.near(state.position_m[:2], _NEAR_M)
        offsets = best_footholds(stones, nominal, heading, self._scale)
        action[:8] = (offsets / np.where(self._scale > 0, self._scale, 1.0)).T.ravel()
        return action

    def told(self) -> Floats:
        """See `Course`."""
        yaw = self._locomotion.estimate.euler_rad[2]
        return np.array(
            [*self._locomotion.odometry_m, np.sin(yaw), np.cos(yaw), self._schedule.speed_m_s]
        )

    def view(self, position_m: Floats) -> tuple[Floats, float]:
        """See `Course`."""
        place = self.path.place(position_m)
        return self.path.at(place.along_m + 0.1)[0], place.heading_rad


def _share(value: float, largest: float) -> float:
    """What part of the largest value an action asks for."""
    return float(np.clip(value / largest, -1, 1)) if largest > 0 else 0.0
