"""The environment of the test bench without images."""

import envs
from tests.training.walk_env import OUTCOMES, WalkEnv


class PlainEnv(WalkEnv):
    """Cannot be filmed. With `nan` its rewards are not finite, with `boom` a step raises."""

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012

    def __init__(self, nan=False, boom=False, **settings):
        super().__init__(**settings)
        self._nan, self._boom = nan, boom

    def step(self, action):
        if self._boom:
            raise RuntimeError("simulator exploded")
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if self._nan else reward, *rest


envs.register(envs.Task(env_id="Plain-v0", outcomes=OUTCOMES), PlainEnv)
