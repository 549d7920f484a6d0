"""Settings of SteppingStones-v0; every one is a keyword of `gymnasium.make`."""

import re
from dataclasses import asdict, field, fields
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.dataclasses import dataclass

from envs.camera_config import CameraConfig
from envs.stepping_stones.felt_config import FeltGroundConfig

DECISION_S = 0.05
"""Time between the policy's decisions, seconds."""

ALL_LEGS = 9
"""Numbers of an action for all legs on a straight path."""
LIFT_OFF_S = 0.25
"""Time between the lift-offs of the gait's two pairs of legs, seconds."""
FASTEST_M_S = 1.0
"""No gait here walks so fast, metres a second."""
LONGEST_GAP_M = 0.30
"""The leg's step plus its largest foothold offset cannot clear a longer gap."""
_FARTHEST_MOVED_M = 0.2
_SHORTEST_WAY_BACK_M, _OUT_AND_BACK_S_A_M = 0.5, 5.0


def _check_range(
    name: str, values: tuple[float, float], least: float, most: float, unit: str = "metres"
) -> None:
    low, high = values
    if not least <= low <= high <= most:
        raise ValueError(
            f"{name} must be [low, high] with {least} <= low <= high <= {most} {unit}, "
            f"got [{low}, {high}]"
        )


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class SteppingStonesConfig:
    """Terrain, sensing, action bounds, reward and ending of the stepping-stones task.

    Terrain as in Hybrid Random Features, appendix K.1.
    """

    stone_width_m: float = Field(default=0.50, ge=0.36, le=5.0)
    """Width of every stone across the direction of travel, metres."""
    stone_length_m: tuple[float, float] = (0.50, 0.80)
    """Range of stone lengths along the direction of travel, metres."""
    gap_m: tuple[float, float] = (0.10, 0.20)
    """Range of gaps between neighbouring stones, metres."""
    first_edge_m: tuple[float, float] = (0.30, 0.50)
    """Range of the distance from the robot's start to the end of the first stone, metres."""
    path_turn: Literal["straight", "left", "right", "random"] = "straight"
    """Direction of the path's first turn; random draws it in each episode. Half circles to
    alternate sides follow. Where it turns, an action has a yaw rate too."""
    path_radius_m: tuple[float, float] = (3.0, 3.0)
    """Range of the radius of a path that turns, metres."""
    stone_aside_m: float = Field(default=0.0, ge=0, le=0.15)
    """Largest distance of a stone's middle from a straight path, to a side drawn for each stone,
    metres."""
    stone_turn_deg: float = Field(default=0.0, ge=0, le=30)
    """Stones of irregular outline on a straight path: each is two crossed rectangles, a long and a
    wide one, turned by angles of up to this, degrees; 0: one rectangle along the path."""
    walk_back: bool = False
    """Whether the robot walks `success_distance_m` ahead, stops for 1 s and walks backward to 0.3 m
    from its start, where the episode ends with success; 3 m take about 15 s."""
    decide: Literal["interval", "lift_off"] = "interval"
    """When an action is decided: every 50 ms, or whenever a pair of legs lifts off, which is every
    0.25 s; then an observation is made, and its images are drawn, at lift-offs alone."""
    action_legs: Literal["all", "lifting"] = "all"
    """Numbers of an action: forward and lateral foothold offsets of all legs and the lateral speed,
    or, with decide = lift_off, the forward offsets of the front and the hind leg that lift off and
    the lateral speed."""
    episode_s: float = Field(default=10.0, gt=0, le=600)
    """Length of an episode, seconds; it is truncated then."""
    foothold_forward_m: float = Field(default=0.12, gt=0, le=0.15)
    """Largest forward foothold offset: what an action of 1 means, metres."""
    foothold_lateral_m: float = Field(default=0.04, ge=0, le=0.08)
    """Largest lateral foothold offset: what an action of 1 means, metres."""
    lateral_speed_m_s: float = Field(default=0.15, ge=0, le=0.3)
    """Largest commanded lateral speed: what an action of 1 means, metres a second."""
    yaw_rate_rad_s: float = Field(default=0.6, gt=0, le=1.0)
    """Largest commanded yaw rate where the path turns: what an action of 1 means, radians a
    second."""
    sensor_noise: float = Field(default=1.0, ge=0, le=10)
    """Scale of all sensor noise; 0 turns it off, 1 is the noise listed in `sensors.py`."""
    cameras: tuple[str, ...] = Field(default=("front", "belly"), min_length=1, max_length=16)
    """The cameras whose images are observed, in their order: front, belly and names of
    `extra_cameras`."""
    front_camera: CameraConfig = CameraConfig(position_m=(0.197, 0.0, -0.115))
    """The camera under the robot's front."""
    belly_camera: CameraConfig = CameraConfig(position_m=(-0.092, 0.0, -0.105))
    """The camera under the robot's belly."""
    extra_cameras: dict[str, CameraConfig] = field(default_factory=dict)
    """Further cameras by name, small letters, digits and _; `cameras` names them too."""
    front_camera_pitch_deg: tuple[float, float] | None = None
    """Range of the front camera's pitch, which is drawn in each episode, degrees; null: the pitch
    of `front_camera`."""
    front_camera_moved_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Largest displacement of the front camera forward or back, left or right, and up or down,
    drawn in each episode, metres."""
    camera_pose_told: bool = False
    """Whether the observation has `camera_pose`, the poses of the cameras."""
    camera_pose_error_deg: tuple[float, float] = (0.0, 0.0)
    """Range of the error of the front camera's pitch in `camera_pose`, drawn in each episode,
    degrees: [-8, 8] draws, [4, 4] is fixed."""
    camera_far_m: float = Field(default=1.5, gt=0.6, le=20)
    """Depth that the cameras report where nothing nearer is seen, metres."""
    depth_false_returns: float = Field(default=0.0, ge=0, le=0.9)
    """Expected share of each depth image in small patches of a false depth."""
    depth_dropped_blocks: float = Field(default=0.0, ge=0, le=0.9)
    """Expected share of each depth image in blocks that return nothing: `camera_far_m`."""
    depth_blackouts: float = Field(default=0.0, ge=0, le=0.5)
    """Expected share of the time in which all cameras return nothing: `camera_far_m`."""
    depth_blackout_s: float = Field(default=0.5, ge=0.05, le=10)
    """Length of each such blackout, seconds."""
    clutter_per_m: float = Field(default=0.0, ge=0, le=40)
    """Boxes beside the path per metre, on both sides together; only the cameras see them."""
    reward_speed_m_s: float = Field(default=0.5, gt=0)
    """Forward progress is rewarded up to this speed, metres a second."""
    margin_reward: float = Field(default=0.0, ge=0)
    """Weight of a dense shaping reward, the margin of the footholds chosen; 0 leaves progress
    alone, which is the task itself."""
    margin_across: bool = False
    """Whether that margin also counts the distance to the stone's sides."""
    centre_reward: float = Field(default=0.0, ge=0)
    """Weight of a reward for coming nearer to the middle of the path, 1 for each 5 cm."""
    effort_cost: float = Field(default=0.0, ge=0)
    """Weight of a cost of foothold offsets, the mean square of those of the legs that lift off, in
    units of the action."""
    success_distance_m: float = Field(default=3.0, gt=0)
    """Distance that a successful episode covers without a fall, metres."""
    felt_ground: FeltGroundConfig = FeltGroundConfig()
    """Tiles that look alike to depth, some of which give way, in place of stones with gaps."""

    @field_validator("front_camera", "belly_camera", mode="before")
    @classmethod
    def _completed(cls, given: Any, info: ValidationInfo) -> Any:
        """Fields that a mapping omits keep this camera's values; the defaults of `CameraConfig` are
        the front camera's."""
        if not isinstance(given, dict) or info.field_name is None:
            return given
        own: Any = next(part.default for part in fields(cls) if part.name == info.field_name)
        # What a validator returns is checked as Python's, not as JSON's: a list is no tuple there.
        changes = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
        return {**asdict(own), **changes}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_range("stone_length_m", self.stone_length_m, 0.2, 10.0)
        _check_range("gap_m", self.gap_m, 0.0, LONGEST_GAP_M)
        _check_range("first_edge_m", self.first_edge_m, 0.25, 10.0)
        _check_range("path_radius_m", self.path_radius_m, 1.5, 10.0)
        self._check_cameras()
        self._check_poses()
        if self.action_legs == "lifting" and (self.decide != "lift_off" or self.commands_twist):
            raise ValueError(
                "action_legs = lifting needs decide = lift_off and a straight path without the "
                f"way back, got decide = {self.decide}, path_turn = {self.path_turn} and "
                f"walk_back = {str(self.walk_back).lower()}"
            )
        if self.margin_across and (self.commands_twist or self.is_irregular):
            raise ValueError(
                "margin_across must be false where the path turns or leads back and with "
                "stone_aside_m or stone_turn_deg, whose margin counts the sides of stones anyway"
            )
        if self.is_irregular and (self.commands_twist or self.felt_ground.is_on):
            raise ValueError(
                "stone_aside_m and stone_turn_deg need a straight path of stones without the way "
                f"back, got path_turn = {self.path_turn}, walk_back = "
                f"{str(self.walk_back).lower()} and felt_ground.world = {self.felt_ground.world}"
            )
        if self.walk_back:
            self._check_way_back()
        self._check_felt_ground()
        return self

    @property
    def length_s(self) -> float:
        """Length of an episode, seconds."""
        return self.episode_s + (self.felt_ground.strip_s if self.felt_ground.is_on else 0.0)

    @property
    def row_end_m(self) -> float:
        """Where the row of stones or tiles ends at the earliest, metres."""
        walked_m = 2.0 + FASTEST_M_S * self.length_s
        return max(walked_m, self.felt_ground.row_m) if self.felt_ground.is_on else walked_m

    def _check_felt_ground(self) -> None:
        felt = self.felt_ground
        if felt.is_on and self.commands_twist:
            raise ValueError(
                f"felt_ground.world = {felt.world} needs a straight path without the way back, got "
                f"path_turn = {self.path_turn} and walk_back = {str(self.walk_back).lower()}"
            )

    def _check_way_back(self) -> None:
        if self.success_distance_m < _SHORTEST_WAY_BACK_M:
            raise ValueError(
                f"walk_back needs a success_distance_m of at least {_SHORTEST_WAY_BACK_M} m, got "
                f"{self.success_distance_m:g}"
            )
        least_s = self.success_distance_m * _OUT_AND_BACK_S_A_M
        if self.episode_s < least_s:
            raise ValueError(
                f"walk_back over success_distance_m = {self.success_distance_m:g} m takes time: "
                f"episode_s must be at least {least_s:g} s, got {self.episode_s:g}"
            )

    @property
    def turns(self) -> bool:
        """Whether the path turns."""
        return self.path_turn != "straight"

    @property
    def is_irregular(self) -> bool:
        """Whether stones lie aside or have irregular outlines."""
        return self.stone_aside_m > 0 or self.stone_turn_deg > 0

    @property
    def commands_twist(self) -> bool:
        """Whether the body's forward speed is commanded and observed."""
        return self.turns or self.walk_back

    @property
    def without_effect(self) -> dict[str, str]:
        """Settings without effect, and the setting that disables each."""
        found = {}
        if self.front_camera_pitch_deg is not None:
            found["front_camera.pitch_deg"] = "front_camera_pitch_deg"
        if not self.turns:
            found |= {"path_radius_m": "path_turn", "yaw_rate_rad_s": "path_turn"}
        if not self.depth_blackouts:
            found["depth_blackout_s"] = "depth_blackouts"
        found |= dict.fromkeys(self.felt_ground.without_effect, "felt_ground.world")
        if self.felt_ground.is_on:
            others = ("gap_m", "stone_length_m", "first_edge_m", "success_distance_m")
            found |= dict.fromkeys(others, "felt_ground.world")
        return found

    @property
    def action_size(self) -> int:
        """Numbers of an action."""
        if self.action_legs == "lifting":
            return 3
        return ALL_LEGS + 1 if self.turns else ALL_LEGS

    @property
    def decision_s(self) -> float:
        """Time between decisions, seconds."""
        return LIFT_OFF_S if self.decide == "lift_off" else DECISION_S

    def _check_cameras(self) -> None:
        known = {"front", "belly", *self.extra_cameras}
        for name in self.extra_cameras:
            if name in ("front", "belly") or not re.fullmatch("[a-z][a-z0-9_]*", name):
                raise ValueError(
                    "extra_cameras must have names of small letters, digits and _, none of them "
                    f"front or belly, got {name!r}"
                )
            if name not in self.cameras:
                raise ValueError(f"cameras must name {name}, which extra_cameras has")
        if not known.issuperset(self.cameras) or len(set(self.cameras)) < len(self.cameras):
            raise ValueError(
                f"cameras must be distinct names of {', '.join(sorted(known))}, got "
                f"{', '.join(self.cameras)}"
            )

    def _check_poses(self) -> None:
        if self.front_camera_pitch_deg is not None:
            _check_range(
                "front_camera_pitch_deg", self.front_camera_pitch_deg, -90.0, 90.0, "degrees"
            )
            low, high = self.front_camera_pitch_deg
            own = self.front_camera.pitch_deg
            if not low <= own <= high and own != CameraConfig().pitch_deg:
                raise ValueError(
                    f"front_camera.pitch_deg = {own:g} has no effect where front_camera_pitch_deg "
                    f"= [{low:g}, {high:g}]; give one of the two"
                )
        if not all(0 <= moved <= _FARTHEST_MOVED_M for moved in self.front_camera_moved_m):
            raise ValueError(
                f"front_camera_moved_m must be three lengths from 0 to {_FARTHEST_MOVED_M} metres, "
                f"got {list(self.front_camera_moved_m)}"
            )
        _check_range("camera_pose_error_deg", self.camera_pose_error_deg, -45.0, 45.0, "degrees")
        if any(self.camera_pose_error_deg) and not self.camera_pose_told:
            raise ValueError(
                f"camera_pose_error_deg needs camera_pose_told = true, as otherwise no pose is "
                f"observed, got {list(self.camera_pose_error_deg)}"
            )
        of_the_front = {
            "front_camera_pitch_deg": self.front_camera_pitch_deg is not None,
            "front_camera_moved_m": any(self.front_camera_moved_m),
            "camera_pose_error_deg": any(self.camera_pose_error_deg),
        }
        given = ", ".join(name for name, is_given in of_the_front.items() if is_given)
        if given and "front" not in self.cameras:
            raise ValueError(
                f"{given} is of the front camera, which cameras must name, got "
                f"{', '.join(self.cameras)}"
            )

    @property
    def draws_poses(self) -> bool:
        """Whether the front camera moves between episodes."""
        return self.front_camera_pitch_deg is not None or any(self.front_camera_moved_m)

    @property
    def chosen_cameras(self) -> dict[str, CameraConfig]:
        """The cameras that are observed, by name, in their order."""
        own = {"front": self.front_camera, "belly": self.belly_camera, **self.extra_cameras}
        return {name: own[name] for name in self.cameras}
