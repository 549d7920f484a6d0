"""Settings of the bi-manual sweeping task."""

import math
import re
from dataclasses import field
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

CAMERA_RANGE_M = (0.35, 2.6)
"""Near and far clipping planes, metres."""
_LONGEST_TABLE_M = 20.0


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class SweepCameraConfig:
    """One colour camera, fixed beside or above the table; z is up in its image."""

    eye_m: tuple[float, float, float] = (-1.02, 0.0, 1.02)
    """Position of the camera."""
    target_m: tuple[float, float, float] = (0.0, 0.0, 0.02)
    """Point that the camera looks at."""
    fov_deg: float = Field(default=47.0, gt=5, lt=120)
    """Field of view over the image's height, degrees."""
    height_px: int = Field(default=250, ge=16, le=1000)
    """Rows of the image; pixels are square."""
    width_px: int = Field(default=250, ge=16, le=1000)
    """Columns of the image."""

    def check(self, eye: str, target: str) -> None:
        """Raise ValueError for an impossible view; the message calls the positions `eye` and
        `target`."""
        low, high = CAMERA_RANGE_M
        if not low <= math.dist(self.eye_m, self.target_m) <= high:
            raise ValueError(
                f"{eye} must be {low} to {high} m from {target} = {list(self.target_m)}, got "
                f"{list(self.eye_m)}"
            )
        if self.eye_m[:2] == self.target_m[:2]:
            raise ValueError(
                f"{eye} must not be straight above or below {target} = {list(self.target_m)}: "
                f"the image has no upward direction there, got {list(self.eye_m)}"
            )


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class BimanualSweepConfig:
    """Scene, tools, control and camera; lengths in metres, angles in radians.

    x points away from the camera's side of the table, y from the right arm to the left one, z up;
    the table's top is z = 0.
    """

    episode_s: float = Field(default=40.0, gt=0, le=3600)
    """Length of an episode, seconds (10 decisions a second)."""
    balls: int = Field(default=30, ge=1, le=100)
    """Number of balls."""
    ball_radius_m: float = Field(default=0.015, ge=0.008, le=0.03)
    """Radius of a ball."""
    ball_mass_kg: float = Field(default=0.01, gt=0, le=1000)
    """Mass of a ball."""
    ball_friction: float = Field(default=0.4, ge=0, le=1000)
    """Sliding friction of a ball (its product with the other surface's counts)."""
    ball_rolling_friction_m: float = Field(default=2e-4, ge=0, le=10)
    """Rolling friction; at 2e-4 a ball at 0.3 m/s stops within 0.4 m."""
    spawn_m: tuple[float, float] = (0.16, 0.20)
    """Largest |x| and |y| at which balls start."""
    table_m: tuple[float, float] = (1.1, 1.1)
    """Size of the table along x and y; its middle is (0, 0)."""
    bowl_x_m: float = Field(default=0.40, gt=0, le=10)
    """Distance x of the bowls from the middle: they stand at (+-x, 0)."""
    bowl_jitter_m: float = Field(default=0.02, ge=0, le=10)
    """Largest displacement of each bowl in x and in y."""
    bowl_base_radius_m: float = Field(default=0.10, gt=0, le=10)
    """Radius of a bowl's floor."""
    bowl_rim_radius_m: float = Field(default=0.135, gt=0, le=10)
    """Radius of a bowl's rim."""
    bowl_height_m: float = Field(default=0.07, gt=0, le=10)
    """Height of a bowl."""
    bowl_plate_m: float = Field(default=0.006, ge=0.002, le=0.02)
    """Thickness of a bowl's wall; its floor is twice as thick."""
    start_jitter_m: float = Field(default=0.03, ge=0, le=0.1)
    """Largest displacement of each tool's start from (0, +-0.30, 0.20) along every axis."""
    blade_width_m: float = Field(default=0.20, ge=0.05, le=10)
    """Width of the left blade, inside its walls."""
    blade_clearance_m: float = Field(default=0.010, ge=0.002, le=10)
    """Clearance between the right tool and each wall of the left one when they nest."""
    blade_length_m: float = Field(default=0.12, ge=0.05, le=10)
    """Length of a blade from edge to handle."""
    blade_slope_rad: float = Field(default=math.pi / 4, ge=0.3, le=1.2)
    """Slope of a blade, rising outwards from its edge."""
    wall_height_m: float = Field(default=0.085, gt=0, le=10)
    """Height of a blade's side walls."""
    wall_ahead_m: float = Field(default=0.05, ge=0, le=10)
    """How far the left walls reach ahead of the blade's edge; the right ones do not."""
    blade_plate_m: float = Field(default=0.004, ge=0.002, le=0.02)
    """Thickness of blades and side walls."""
    handle_m: float = Field(default=0.12, gt=0, le=10)
    """Length of the vertical handle between blade and arm."""
    arm_distance_m: float = Field(default=0.57, gt=0, le=10)
    """Distance of the arms from the middle: they stand at (0, +-this)."""
    step_m: float = Field(default=0.04, gt=0, le=0.1)
    """Largest change of a target coordinate in a decision."""
    step_rad: float = Field(default=0.2, gt=0, le=0.5)
    """Largest change of a target angle in a decision."""
    frozen_arm: Literal["none", "left", "right"] = "none"
    """An arm that ignores its part of the action."""
    image_px: int = Field(default=500, ge=50, le=1000)
    """Height and width of the image."""
    images: bool = True
    """Whether images are rendered; without, `rgb` is black."""
    camera_eye_m: tuple[float, float, float] = (-1.02, 0.0, 1.02)
    """Position of the camera."""
    camera_target_m: tuple[float, float, float] = (0.0, 0.0, 0.02)
    """Point that the camera looks at."""
    camera_fov_deg: float = Field(default=47.0, gt=5, lt=120)
    """Field of view, degrees."""
    extra_cameras: dict[str, SweepCameraConfig] = field(default_factory=dict)
    """Further cameras by name, small letters, digits and _: `rgb_NAME` is the image of each."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.bowl_rim_radius_m < self.bowl_base_radius_m:
            raise ValueError(
                f"bowl_rim_radius_m must be at least bowl_base_radius_m = "
                f"{self.bowl_base_radius_m}, got {self.bowl_rim_radius_m}"
            )
        if 2 * self.bowl_plate_m >= self.bowl_height_m:
            raise ValueError(
                f"bowl_plate_m must be below half of bowl_height_m = {self.bowl_height_m}, got "
                f"{self.bowl_plate_m}"
            )
        if min(self.table_m) <= 0:
            raise ValueError(f"table_m must be two positive lengths, got {list(self.table_m)}")
        if max(self.table_m) > _LONGEST_TABLE_M:
            raise ValueError(f"table_m must be at most {_LONGEST_TABLE_M}, got {self.table_m}")
        if min(self.spawn_m) <= 0:
            raise ValueError(f"spawn_m must be two positive lengths, got {list(self.spawn_m)}")
        room = 4 * self.spawn_m[0] * self.spawn_m[1]
        needed = 4 * self.balls * (2 * self.ball_radius_m) ** 2
        if needed > room:
            raise ValueError(
                f"balls = {self.balls} of radius {self.ball_radius_m} m need {needed:.3f} m^2, "
                f"and spawn_m = {list(self.spawn_m)} gives {room:.3f} m^2"
            )
        if self.blade_clearance_m >= self.ball_radius_m:
            raise ValueError(
                f"blade_clearance_m must be below ball_radius_m = {self.ball_radius_m}, or balls "
                f"slip through, got {self.blade_clearance_m}"
            )
        if self.blade_clearance_m > self.blade_width_m / 4:
            raise ValueError(
                f"blade_clearance_m must be at most a quarter of blade_width_m = "
                f"{self.blade_width_m}, got {self.blade_clearance_m}"
            )
        self._check_places()
        self._check_cameras()
        return self

    def _check_places(self) -> None:
        """Bowls stand on the table, and balls start on it and beside the bowls."""
        aside = self.bowl_jitter_m + self.bowl_base_radius_m
        outermost = self.bowl_x_m + aside
        half_x, half_y = self.table_m[0] / 2, self.table_m[1] / 2
        if aside > half_y:
            raise ValueError(
                f"bowl_jitter_m + bowl_base_radius_m must be at most {half_y}, or a bowl reaches "
                f"over the table's side, got {aside:.3f}"
            )
        if outermost > half_x:
            raise ValueError(
                f"bowl_x_m + bowl_jitter_m + bowl_base_radius_m must be at most {half_x}, "
                f"or a bowl stands beside the table, got {outermost:.3f}"
            )
        x = self.bowl_x_m - self.bowl_jitter_m - self.bowl_rim_radius_m - self.ball_radius_m
        y = half_y - self.ball_radius_m
        if self.spawn_m[0] > x or self.spawn_m[1] > y:
            raise ValueError(
                f"spawn_m must be at most [{x:.3f}, {y:.3f}], or balls start in a bowl or beside "
                f"the table, got {list(self.spawn_m)}"
            )

    def _check_cameras(self) -> None:
        self.cameras_by_key["rgb"].check("camera_eye_m", "camera_target_m")
        for name, camera in self.extra_cameras.items():
            if not re.fullmatch("[a-z][a-z0-9_]*", name):
                raise ValueError(
                    f"extra_cameras must have names of small letters, digits and _, got {name!r}"
                )
            camera.check(f"extra_cameras.{name}.eye_m", "its target_m")

    @property
    def cameras_by_key(self) -> dict[str, SweepCameraConfig]:
        """Every camera by its key in the observation."""
        first = SweepCameraConfig(
            self.camera_eye_m,
            self.camera_target_m,
            self.camera_fov_deg,
            self.image_px,
            self.image_px,
        )
        return {"rgb": first} | {f"rgb_{name}": one for name, one in self.extra_cameras.items()}
