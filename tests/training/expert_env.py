"""The toy environment with an expert to clone."""

import numpy as np

import envs
from tests.training.toy_env import OUTCOMES, ToyEnv


class ExpertEnv(ToyEnv):
    """The expert's actions lie around 0.3 and follow the proprioception.

    `nan_after` observations of an episode the cameras see NaN.
    """

    def __init__(self, episode_s=0.5, nan_after=None):
        super().__init__(episode_s)
        self._blind_after = nan_after

    def _observe(self):
        observation = super()._observe()
        if self._blind_after is not None and self._t >= self._blind_after:
            observation["depth"][:] = np.nan
        return observation

    def expert_action(self):
        return np.clip(0.3 + 0.05 * (self._proprio[:9] - 2), -1, 1).astype(np.float32)


envs.register(envs.Task(env_id="Expert-v0", outcomes=OUTCOMES), ExpertEnv)
