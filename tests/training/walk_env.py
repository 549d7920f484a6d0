"""A tiny walk in one dimension with depth images, an expert and images: the loop's test bench."""

import os
import signal
import sys

import gymnasium
import numpy as np
from gymnasium import spaces

import envs


class WalkEnv(gymnasium.Env):
    """A step goes action[0] * 0.1 m forward, less `wind`; below -0.15 m the walker falls.

    The expert's action is 1; success is 0.4 m after ten steps. A process that is not
    the first dies in its first step of the episode with the seed `deadly_seed`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode=None, wind=0.0, deadly_seed=None, bound=1.0):
        self.render_mode, self.wind, self.deadly_seed = render_mode, wind, deadly_seed
        self.observation_space = spaces.Dict(
            {
                "depth": spaces.Box(-np.inf, np.inf, (2, 24, 32), np.float32),
                "proprio": spaces.Box(-np.inf, np.inf, (3,), np.float32),
            }
        )
        self.action_space = spaces.Box(-bound, bound, (9,), np.float32)
        self.resets = []

    def _observe(self):
        return {
            "depth": self.np_random.uniform(0.3, 1.2, (2, 24, 32)).astype(np.float32),
            "proprio": np.array([self.t, self.x, self.wind], np.float32),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self.t, self.x = 0, float(self.np_random.uniform(0, 0.05))
        return self._observe(), {"distance_m": self.x}

    def step(self, action):
        deadly = self.deadly_seed is not None and self.resets[-1][0] == self.deadly_seed
        if deadly and "pytest" not in sys.modules:  # in a worker process
            os.kill(os.getpid(), signal.SIGKILL)
        before = self.x
        self.x += 0.1 * float(action[0]) - self.wind
        self.t += 1
        fell = self.x < -0.15
        done = self.t >= 10
        info = {"distance_m": self.x, "fell": fell, "success": done and self.x > 0.4}
        return self._observe(), self.x - before, fell, done and not fell, info

    def expert_action(self):
        return np.ones(9, np.float32)

    def render(self):
        picture = np.full((480, 640, 3), 40, np.uint8)
        column = int(np.clip(320 + 300 * self.x, 20, 619))
        picture[200:280, column - 20 : column + 20] = (90, 160, 250)
        return picture


OUTCOMES = envs.find_task(envs.STEPPING_STONES).outcomes
envs.register(envs.Task(env_id="Walk-v0", outcomes=OUTCOMES), WalkEnv)
