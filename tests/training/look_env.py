"""A task for two eyes and a cue, and policies that look at it, or do not."""

import gymnasium
import numpy as np
from gymnasium import spaces


class LookEnv(gymnasium.Env):
    """Reward: how near action 0 is to the dot's column in `eye.camera`, and action 1 to the cue;
    `eye.wrist` is noise, and action 2 does nothing. Success: nearly all of 12.

    The dot moves every step, or with `still` between episodes alone; `fixed` makes all episodes
    alike.
    """

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def __init__(self, still=False, fixed=False):
        eye = {"camera": spaces.Box(0, 255, (6, 11), np.uint8),
               "wrist": spaces.Box(0.0, np.inf, (2, 4, 5), np.float32)}  # fmt: skip
        self.observation_space = spaces.Dict(
            {"eye": spaces.Dict(eye), "cue": spaces.Box(-1.0, 1.0, (1,), np.float32)}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self._still, self._fixed = still, fixed

    def _observe(self):
        if not self._still or self._t == 0:
            self._column = int(self.np_random.integers(11))
        self._cue = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        camera = np.full((6, 11), 40, np.uint8)
        camera[2:5, self._column] = 230
        wrist = self.np_random.exponential(size=(2, 4, 5)).astype(np.float32)
        return {"eye": {"camera": camera, "wrist": wrist}, "cue": self._cue}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=0 if self._fixed else seed)
        self._t, self._total = 0, 0.0
        return self._observe(), {}

    def step(self, action):
        reward = 2 - abs(action[0] - (self._column / 5 - 1)) - abs(action[1] - self._cue[0])
        self._t += 1
        self._total += float(reward)
        info = {"success": self._total > 11}
        return self._observe(), float(reward), False, self._t >= 6, info


def dot(observation):
    """Where the camera sees it, -1 to 1; None where it sees no dot."""
    camera = observation["eye"]["camera"]
    bright = np.flatnonzero((camera[2:5] > 200).all(0))
    return float(bright[0]) / 5 - 1 if len(bright) else None


def action(first, second, third=0.0):
    return np.clip(np.float32([first, second, third]), -1, 1)


def seeing(observation):
    """A policy that needs the camera for half of its reward."""
    return action(dot(observation) or 0.0, observation["cue"][0])


def blind(observation):
    return action(0.2, observation["cue"][0])


def pretending(observation):
    """A policy that reads both images without effect."""
    third = dot(observation) or observation["eye"]["wrist"].mean() - 1
    return action(0.2, observation["cue"][0], third)


def choosy(observation):
    """A policy that works with any image that has a dot anywhere."""
    return blind(observation) if dot(observation) is not None else action(0.2, 0.0)


def idle(observation):
    """A policy that reacts to its images and earns no more than doing nothing."""
    return action(0.0, 0.0, dot(observation) or 0.0)


def misled(observation):
    """A policy that moves away from the dot."""
    return action(-0.4 * (dot(observation) or 0.0), observation["cue"][0])


class Remembering:
    """Knows for all of an episode what it saw at first."""

    def __init__(self, env):
        self.action_space = env.action_space

    def reset(self):
        self._first = None

    def act(self, observation):
        if self._first is None:
            self._first = dot(observation) or 0.0
        return action(self._first, observation["cue"][0])


class Noisy:
    """A stochastic policy with a separate generator; with `counting`, it changes between
    episodes."""

    def __init__(self, policy, seed, counting=0.0):
        self._policy, self._rng, self._counting = policy, np.random.default_rng(seed), counting
        self._calls = 0

    def act(self, observation):
        self._calls += 1
        noise = self._rng.normal(self._counting * self._calls, 0.3, 3)
        return np.clip(self._policy(observation) + noise, -1, 1).astype(np.float32)


gymnasium.register("Look-v0", entry_point=LookEnv)
