"""The description of BimanualSweep-v0."""

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.task import Outcome, Task

__all__ = ["BIMANUAL_SWEEP", "TASK"]

BIMANUAL_SWEEP = "BimanualSweep-v0"

TASK = Task(
    env_id=BIMANUAL_SWEEP,
    settings=BimanualSweepConfig,
    embodiment=(
        "image_px",
        "images",
        "camera_eye_m",
        "camera_target_m",
        "camera_fov_deg",
        "extra_cameras",
        "step_m",
        "step_rad",
        "arm_distance_m",
        "handle_m",
        "blade_width_m",
        "blade_clearance_m",
        "blade_length_m",
        "blade_plate_m",
        "blade_slope_rad",
        "wall_height_m",
        "wall_ahead_m",
    ),
    outcomes=(
        Outcome(
            name="in_bowls",
            label="in bowls",
            of="balls",
            kind="share",
            decimals=3,
            axis="balls in bowls, share",
            sentence="places {} of the balls",
        ),
    ),
    headline="in_bowls",
    success="places every ball, which counts as success,",
    reward="fraction in bowls",
    expert=True,
    picture="rgb",
)
