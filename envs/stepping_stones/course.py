"""Courses: the stones of an episode, the progress along them, and the expert's action.

`StraightCourse` is the row of stones of the paper, `IrregularCourse` one of stones aside and of
irregular outline. `TwistCourse` follows a path that turns, or
leads out and back, by a commanded twist. `FeltCourse` is a straight row of tiles.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.felt_ground import FeltCourse, draw_felt_ground
from envs.stepping_stones.irregular_course import IrregularCourse
from envs.stepping_stones.locomotion import FootholdCommand, Locomotion
from envs.stepping_stones.path import Path
from envs.stepping_stones.robot import RobotState
from envs.stepping_stones.sensors import Measurement
from envs.stepping_stones.straight_course import StraightCourse
from envs.stepping_stones.terrain import Boxes, Stones, draw_stones
from envs.stepping_stones.turned_stones import TurnedStones, lay_irregular_stones, lay_stones
from envs.stepping_stones.twist_course import TwistCourse

Floats = NDArray[np.float64]


class Course(Protocol):
    """The interface between the environment and the course of an episode."""

    @property
    def stones(self) -> Stones | TurnedStones:
        """The stones."""

    @property
    def is_over(self) -> bool:
        """Whether the task has been completed before the time is up."""

    def begin(self, measurement: Measurement) -> Locomotion:
        """The walking controller of the episode."""

    def boxes(self, clutter_m: tuple[Floats, Floats]) -> Boxes:
        """Stones, then clutter, whose corners are given by the path, in the world."""

    def near(self, boxes: Boxes, position_m: Floats, reach_m: tuple[float, float]) -> Boxes:
        """Return the boxes from `reach_m[0]` behind the base to `reach_m[1]` ahead of it."""

    def command(self, action: Floats) -> FootholdCommand:
        """The command of the walking controller for an action."""

    def margin_m(self, command: FootholdCommand, state: RobotState) -> Floats:
        """Distance (4,) inside a stone at which each leg would land if it lifted off now."""

    def aside_m(self, position_m: Floats) -> float:
        """How far left of the path's middle the robot is."""

    def advance(self, position_m: Floats) -> float:
        """Progress since the last decision, or since the start, in the commanded direction,
        metres."""

    def distance_m(self) -> float:
        """How far the robot has come so far."""

    def has_succeeded(self) -> bool:
        """Whether an episode that ends now without a fall is a success."""

    def expert_action(self, state: RobotState) -> NDArray[np.float32]:
        """The scripted expert's action; it knows the stones."""

    def observed(self) -> Floats:
        """Numbers that proprioception has in addition to those of the straight course."""

    def view(self, position_m: Floats) -> tuple[Floats, float]:
        """A point (2,) to look at, and the path's direction there, for rendering."""


def draw_course(
    config: SteppingStonesConfig, gap_m: tuple[float, float], rng: np.random.Generator
) -> Course:
    """A random course; the same `rng` gives every kind of course stones and gaps of the same
    lengths."""
    if config.felt_ground.is_on:
        return FeltCourse(config, draw_felt_ground(config, rng))
    if config.is_irregular:
        return IrregularCourse(config, lay_irregular_stones(config, gap_m, rng))
    if not config.commands_twist:
        return StraightCourse(config, draw_stones(config, gap_m, rng))
    path = _draw_path(config, rng.spawn(1)[0])
    return TwistCourse(config, path, lay_stones(config, gap_m, path, rng))


def _draw_path(config: SteppingStonesConfig, rng: np.random.Generator) -> Path:
    radius_m, left = rng.uniform(*config.path_radius_m), rng.random() < 0.5
    sides = {"straight": 0.0, "left": 1.0, "right": -1.0, "random": 1.0 if left else -1.0}
    return Path(sides[config.path_turn] / radius_m)
