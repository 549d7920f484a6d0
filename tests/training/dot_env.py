"""A dot to be found in an image: small tasks with images of several kinds, and their expert."""

import gymnasium
import numpy as np
from gymnasium import spaces


class DotEnv(gymnasium.Env):
    """Reward: how near the action is to the dot's column, from -1 to 1; twelve steps an episode.

    `kind` is the image: "colours" (16, 20, 3) uint8, "first" (3, 16, 20) uint8, "grey" (16, 20)
    float, or "dict", colours beside a vector without information. With `choices` the action is one
    of this many columns. The dot moves every step; with `hidden` it is seen at the first alone."""

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def __init__(self, kind="colours", choices=None, hidden=False):
        image = {
            "colours": spaces.Box(0, 255, (16, 20, 3), np.uint8),
            "first": spaces.Box(0, 255, (3, 16, 20), np.uint8),
            "grey": spaces.Box(0.0, 1.0, (16, 20), np.float32),
        }
        image["dict"] = spaces.Dict(
            {"camera": image["colours"], "noise": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
        )
        self.observation_space = image[kind]
        self._kind, self._choices, self._hidden = kind, choices, hidden
        self.action_space = (
            spaces.Box(-1.0, 1.0, (1,), np.float32) if choices is None else spaces.Discrete(choices)
        )

    def _observe(self):
        if not self._hidden or self._t == 0:
            self._column, self._row = self.np_random.integers(0, (20, 13))
        picture = np.full((16, 20, 3), 40, np.uint8)
        if not self._hidden or self._t == 0:
            picture[self._row : self._row + 4, max(0, self._column - 2) : self._column + 2] = 230
        if self._kind == "grey":
            return (picture[..., 0] / np.float32(255)).astype(np.float32)
        if self._kind == "first":
            return picture.transpose(2, 0, 1).copy()
        if self._kind == "dict":
            noise = self.np_random.normal(3.0, 2.0, 2).astype(np.float32)
            return {"camera": picture, "noise": noise}
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._observe(), {}

    def expert_action(self):
        if self._choices is None:
            return np.float32([self._column / 9.5 - 1])
        return np.int64(self._column * self._choices // 20)

    def step(self, action):
        assert self.action_space.contains(action)
        if self._choices is None:
            reward = 1 - abs(float(action[0]) - (self._column / 9.5 - 1))
        else:
            reward = float(action == self.expert_action())
        self._t += 1
        return self._observe(), reward, False, self._t >= 12, {}


gymnasium.register("Dot-v0", entry_point=DotEnv)
