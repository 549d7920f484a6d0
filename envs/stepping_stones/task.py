"""The description of SteppingStones-v0."""

from envs.stepping_stones.config import SteppingStonesConfig
from envs.task import DepthEdges, Outcome, Task

__all__ = ["STEPPING_STONES", "TASK"]

STEPPING_STONES = "SteppingStones-v0"

TASK = Task(
    env_id=STEPPING_STONES,
    settings=SteppingStonesConfig,
    embodiment=(
        "cameras",
        "front_camera",
        "belly_camera",
        "extra_cameras",
        "camera_far_m",
        "foothold_forward_m",
        "foothold_lateral_m",
        "lateral_speed_m_s",
    ),
    per_episode=("gap_m",),
    outcomes=(
        Outcome(name="distance_m", label="distance", unit="m"),
        Outcome(
            name="fell",
            label="fell",
            kind="event",
            better="down",
            otherwise="stayed up",
            mean="fall_rate",
        ),
    ),
    expert=True,
    # Stone tops are 0.35 to 0.45 m below the cameras, the floor 0.85 m.
    edges=DepthEdges(
        past_m=0.6, edge="a gap's edge", past="past the stones", between="between stone and floor"
    ),
)
