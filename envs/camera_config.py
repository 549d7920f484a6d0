"""Settings of a depth camera; they load without a simulator."""

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class CameraConfig:
    """One depth camera, fixed to the robot's base (x forward, y left, z up)."""

    position_m: tuple[float, float, float] = (0.197, 0.0, -0.115)
    """Optical centre in the base frame, metres."""
    pitch_deg: float = Field(default=90.0, ge=-90, le=90)
    """Angle of the optical axis below the forward direction, degrees; 90 looks straight down."""
    yaw_deg: float = Field(default=0.0, ge=-180, le=180)
    """Turn of the camera about the base's vertical axis, degrees; positive turns it left."""
    roll_deg: float = Field(default=0.0, ge=-180, le=180)
    """Turn of the camera about its optical axis, degrees; positive turns it clockwise, as seen from
    behind it."""
    width_along: Literal["travel", "lateral"] = "travel"
    """The direction that the image's columns span where yaw and roll are 0; the rows span the
    other."""
    fov_deg: float = Field(default=75.0, gt=0, lt=170)
    """Field of view over the image's height, degrees."""
    height_px: int = Field(default=24, ge=4, le=1024)
    """Rows of the image; pixels are square."""
    width_px: int = Field(default=32, ge=4, le=1024)
    """Columns of the image."""
