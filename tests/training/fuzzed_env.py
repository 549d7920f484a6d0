"""An environment that breaks one rule of Gymnasium's interface at a time."""

import gymnasium
import numpy as np
from gymnasium import spaces

import envs

STEPS, AT = 6, 3
"""Steps of an episode, and the one at which a rule is broken."""


class FuzzedEnv(gymnasium.Env):
    """Spaces of every kind. `change` replaces what `where` names: "reset" or "step" (all that is
    returned), "observation", "image", "numbers", "choice", "choices", "marks", "reward",
    "terminated", "truncated", "info", or a key of `info`; at step AT, or with `at` = 0 at reset.
    With `boxes` it has no parts but Boxes; `end` is whether it succeeds at the end.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    frame = None

    def __init__(
        self, where="", change=None, at=AT, boxes=False, size=(12, 16), end=1, render_mode=None
    ):
        self._end = bool(end)
        self.size, self.change, self.render_mode = size, change, render_mode
        self.observation_space = spaces.Dict(
            {
                "picture": spaces.Box(0, 255, (12, 16, 3), np.uint8),
                "numbers": spaces.Box(-1, 10, (3,), np.float32),
                "pair": spaces.Tuple(
                    (spaces.Discrete(4, start=2), spaces.MultiDiscrete([3, 2])),
                ),
                "marks": spaces.MultiBinary(2),
            }
        )
        if boxes:
            self.observation_space = spaces.Dict(
                {key: self.observation_space[key] for key in ("picture", "numbers")}
            )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._where, self._change, self._at = where, change, at

    def _new(self, name, value):
        if name != self._where or self._t != self._at:
            return value
        return self._change(value) if callable(self._change) else self._change

    def _observe(self):
        picture = self.np_random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        numbers = self.np_random.uniform(-1, 10, 3).astype(np.float32)
        choices = self.np_random.integers(0, 2, 2)
        found = {
            "picture": self._new("picture", picture),
            "numbers": self._new("numbers", numbers),
            "pair": (self._new("choice", np.int64(3)), self._new("choices", choices)),
            "marks": self._new("marks", np.ones(2, np.int8)),
        }
        found = {key: found[key] for key in self.observation_space.spaces}
        return self._new("observation", found)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._new("reset", (self._observe(), self._new("info", {})))

    def step(self, action):
        self._t += 1
        info = {"success": self._new("success", self._end and self._t >= STEPS)}
        if self._where == "is_success":
            info = {"is_success": self._new("is_success", self._t >= STEPS)}
        reward = self._new("reward", float(action[0]))
        ended = self._new("terminated", self._t >= STEPS)
        rest = reward, ended, self._new("truncated", False), self._new("info", info)
        return self._new("step", (self._observe(), *rest))

    def render(self):
        return self.frame(self._t) if callable(self.frame) else self.frame

    def expert_action(self):
        return np.zeros(2, np.float32)


class EmptyEnv(gymnasium.Env):
    """Observations of any shape, actions of any number of numbers, and with `more` others."""

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012

    def __init__(self, seen=3, taken=2, more=None):
        seen = (seen,) if isinstance(seen, int) else seen
        self.observation_space = spaces.Box(-1, 1, seen, np.float32)
        if more is not None:
            more = spaces.Box(-1, 1, (more,), np.float32)
            self.observation_space = spaces.Dict({"seen": self.observation_space, "more": more})
        self.action_space = spaces.Box(-1, 1, (taken,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self._t += 1
        return self.observation_space.sample(), 1.0, False, self._t >= STEPS, {}


envs.register(envs.Task(env_id="Fuzzed-v0"), FuzzedEnv)
envs.register(envs.Task(env_id="Empty-v0"), EmptyEnv)
