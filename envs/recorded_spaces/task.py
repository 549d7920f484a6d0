"""The description of RecordedSpaces-v0; importing it registers the environment."""

from envs.recorded_spaces.config import RecordedSpacesConfig
from envs.task import Task, register

TASK = Task(
    env_id="RecordedSpaces-v0",
    settings=RecordedSpacesConfig,
    embodiment=("observation", "action", "rate_hz"),
)

register(TASK, "envs.recorded_spaces.env:RecordedSpacesEnv")
