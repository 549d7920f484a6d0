"""A small environment with images and an expert to record; what it says is easy to check."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces

import envs


class PictureEnv(gymnasium.Env):
    """A square that the actions push; `pose` is the sum of the executed actions.

    Episodes of even seeds succeed at step `success_at`, those of odd ones never. From `loud_from`
    on the images of a seed are noise that does not compress; at `die_at` its process dies, at
    `nan_at` its expert does not know. `step_s` is the time of a step.
    """

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, steps=12, success_at=None, loud_from=10**6, die_at=None, nan_at=None, step_s=0.0,
        bound=0.5, render_mode=None,
    ):  # fmt: skip
        self.observation_space = spaces.Dict(
            {
                "rgb": spaces.Box(0, 255, (40, 48, 3), np.uint8),
                "pose": spaces.Box(-np.inf, np.inf, (3,), np.float32),
            }
        )
        self.action_space = spaces.Box(-bound, bound, (3,), np.float32)
        self._steps, self._success_at, self._step_s = steps, success_at, step_s
        self._loud_from, self._die_at, self._nan_at = loud_from, die_at, nan_at

    def _observe(self):
        picture = np.full((40, 48, 3), 200, np.uint8)
        row, column = (self._pose[:2] * 3 + 20).astype(int).clip(0, 32)
        picture[row : row + 8, column : column + 8] = (self._t * 20 % 256, 30, 30)
        if self._seed >= self._loud_from:
            picture = self.np_random.integers(0, 256, picture.shape, np.uint8)
        return {"rgb": picture, "pose": self._pose.copy()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._seed, self._t = seed, 0
        self._pose = self.np_random.normal(0, 1, 3).astype(np.float32)
        if seed == self._die_at:
            os.kill(os.getpid(), 9)
        return self._observe(), {}

    def expert_action(self):
        if self._seed == self._nan_at:
            return np.full(3, np.nan, np.float32)
        return np.clip(-0.2 * self._pose, -0.4, 0.4).astype(np.float32)

    def step(self, action):
        time.sleep(self._step_s)
        self._pose += action
        self._t += 1
        success = bool(self._success_at and self._seed % 2 == 0 and self._t >= self._success_at)
        info = {"in_bowls": self._t / self._steps, "success": success, "note": "text"}
        return self._observe(), self._t / self._steps, False, self._t >= self._steps, info


class TiringEnv(PictureEnv):
    """Its expert says when nothing is left to do."""

    @property
    def expert_done(self):
        return self._t >= 4


SWEEP = envs.find_task(envs.BIMANUAL_SWEEP)
for name, entry_point in (("Picture-v0", PictureEnv), ("Tiring-v0", TiringEnv)):
    description = envs.Task(env_id=name, outcomes=SWEEP.outcomes, headline=SWEEP.headline)
    envs.register(description, entry_point)
