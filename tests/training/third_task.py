"""An environment without a description: numbers, discrete actions, no frame rate."""

import gymnasium
import numpy as np
from gymnasium import spaces


class BareEnv(gymnasium.Env):
    """The reward is 1 where the action is the sign of the number seen."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length=5):
        if length < 1:
            raise RuntimeError("length is too short")
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = self.length
        return self._look(), {}

    def step(self, action):
        reward = float(action == (self._seen[0] > 0))
        self._left -= 1
        return self._look(), reward, self._left == 0, False, {}

    def _look(self):
        self._seen = self.np_random.standard_normal(3)
        return self._seen


gymnasium.register("Bare-v0", entry_point=BareEnv)
