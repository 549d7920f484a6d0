"""The description of SteppingStones-v0; importing it registers the environment."""

from pathlib import Path

from envs.stepping_stones.config import SteppingStonesConfig
from envs.task import DepthEdges, Outcome, Task, register

TASK = Task(
    env_id="SteppingStones-v0",
    what=(
        "A quadruped walks over stepping stones; a policy says how far from its nominal place each "
        "foot lands. An episode succeeds where the robot walks far enough without a fall."
    ),
    scene=Path(__file__).with_name("scene.webp"),
    settings=SteppingStonesConfig,
    embodiment=(
        "cameras",
        "front_camera",
        "belly_camera",
        "extra_cameras",
        "front_camera_pitch_deg",
        "front_camera_moved_m",
        "camera_pose_told",
        "camera_far_m",
        "decide",
        "action_legs",
        "foothold_forward_m",
        "foothold_lateral_m",
        "lateral_speed_m_s",
        "path_turn",
        "yaw_rate_rad_s",
        "walk_back",
        "felt_ground",
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
    shown=(0.25, 1.25),
    # Stone tops are 0.35 to 0.45 m below the cameras, the floor 0.85 m.
    edges=DepthEdges(
        past_m=0.6, edge="a gap's edge", past="past the stones", between="between stone and floor"
    ),
)

register(TASK, "envs.stepping_stones.env:SteppingStonesEnv")
