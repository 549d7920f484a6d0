"""Settings of CarRacingRepeat-v0; every one is a keyword of `gymnasium.make`."""

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", allow_inf_nan=False),
)
class CarRacingConfig:
    """Action repeat, length, ending and distraction of CarRacingRepeat-v0."""

    action_repeat: int = Field(default=4, ge=1, le=50)
    """Frames of 20 ms that an action lasts; the last of them alone is drawn."""
    largest_steer: float = Field(default=1.0, gt=0, le=1)
    """Steering that 1 means, as a share of CarRacing-v3's."""
    largest_gas: float = Field(default=0.5, gt=0, le=1)
    """Gas that a drive of 1 means, as a share of CarRacing-v3's."""
    largest_brake: float = Field(default=0.8, gt=0, le=1)
    """Brake that a drive of -1 means, as a share of CarRacing-v3's; 1 would block the wheels."""
    idle_drive: float = Field(default=0.0, ge=-1, le=1)
    """Added to every drive, the sum clipped to -1 and 1: the drive of an action of 0."""
    episode_frames: int = Field(default=1000, ge=1, le=10**6)
    """Length of an episode, frames of 20 ms; it is truncated then."""
    patience_frames: int | None = Field(default=None, ge=1)
    """Frames without a new tile of track after which an episode is terminated; null: it is not,
    as in CarRacing-v3. Training is faster without the steps of a lost car."""
    distraction: Literal["none", "colour", "bars", "blob"] = "none"
    """Visual distraction, as in AttentionAgent (Tang, Nguyen and Ha 2020): track and grass of other
    colours, black bars at both sides, or a red blob at a fixed place beside the car."""
