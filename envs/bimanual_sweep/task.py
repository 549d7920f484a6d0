"""The description of BimanualSweep-v0; importing it registers the environment."""

from pathlib import Path

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.task import Outcome, Task, register

TASK = Task(
    env_id="BimanualSweep-v0",
    what=(
        "Two arms with spatulas bring balls from a table into two bowls, by a camera's pictures. "
        "An episode is judged by the share of the balls that lie in the bowls."
    ),
    scene=Path(__file__).with_name("scene.webp"),
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
    camera_image="rgb",
)

register(TASK, "envs.bimanual_sweep.env:BimanualSweepEnv")
