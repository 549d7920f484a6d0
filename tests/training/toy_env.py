"""A tiny environment with the observations and actions of SteppingStones-v0, for the trainer."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces

import envs


class ToyEnv(gymnasium.Env):
    """Reward: how near the action is to a target that is linear in the proprioception.

    `nan_after` steps the reward is NaN; `busy_s` of computing a step; `die_once` names a file: the
    first process to make it kills itself in the middle of an episode; `deadly` kills every process.
    """

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012

    def __init__(self, episode_s=0.25, nan_after=None, busy_s=0.0, die_once=None, deadly=False):
        self.observation_space = spaces.Dict(
            {
                "depth": spaces.Box(-np.inf, np.inf, (2, 24, 32), np.float32),
                "proprio": spaces.Box(-np.inf, np.inf, (45,), np.float32),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (9,), np.float32)
        self._steps = round(episode_s * 20)
        self._nan_after, self._busy_s = nan_after, busy_s
        self._die_once, self._deadly = die_once, deadly

    def _observe(self):
        self._proprio = self.np_random.normal(2.0, 3.0, 45).astype(np.float32)
        depth = self.np_random.uniform(0.3, 0.7, (2, 24, 32)).astype(np.float32)
        return {"depth": depth, "proprio": self._proprio}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._easy = (options or {}).get("easy", 1.0)
        self._t, self._total = 0, 0.0
        return self._observe(), {}

    def step(self, action):
        if self._die_once and self._t == 2 and not os.path.exists(self._die_once):
            open(self._die_once, "w").close()
            os.kill(os.getpid(), 9)
        if self._deadly:
            os.kill(os.getpid(), 9)
        until = time.process_time() + self._busy_s
        while time.process_time() < until:
            pass
        target = 0.6 + 0.02 * self._proprio[:9]
        reward = 1.0 - float(np.square(action - target).mean()) / self._easy
        self._t += 1
        if self._nan_after is not None and self._t > self._nan_after:
            reward = np.nan
        self._total += reward
        done = self._t >= self._steps
        mean = self._total / self._t
        info = {"distance_m": mean, "fell": mean < 0.5, "success": done and mean > 0.8}
        return self._observe(), reward, False, done, info


OUTCOMES = envs.find_task(envs.STEPPING_STONES).outcomes
envs.register(envs.Task(env_id="Toy-v0", outcomes=OUTCOMES), ToyEnv)
