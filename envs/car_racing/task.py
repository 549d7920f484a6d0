"""The description of CarRacingRepeat-v0; importing it registers the environment."""

from pathlib import Path

from envs.car_racing.config import CarRacingConfig
from envs.task import Outcome, Task, register

TASK = Task(
    env_id="CarRacingRepeat-v0",
    what=(
        "A car seen from above is driven along a track by its picture, a new track every episode. "
        "An episode is judged by the share of the track that it visits."
    ),
    scene=Path(__file__).with_name("scene.webp"),
    settings=CarRacingConfig,
    embodiment=("action_repeat", "largest_steer", "largest_gas", "largest_brake", "idle_drive"),
    outcomes=(
        Outcome(
            name="tiles",
            label="visited",
            kind="share",
            decimals=3,
            of="the track",
            axis="track visited, share",
            sentence="visits {} of the track",
        ),
    ),
    headline="tiles",
    success="finishes the lap, which counts as success,",
)

register(TASK, "envs.car_racing.env:CarRacingEnv")
