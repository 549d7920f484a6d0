"""A cart on a plane that declares the terms of its reward and its mirror."""

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.geometry import Mirror, Reflection


class Cart(gymnasium.Env):
    """The state (x, y, goal x, goal y) moves by the action; one term of the reward is how near x is
    to its goal, one how near y is. Left and right, y, may be exchanged.

    Args:
        reported: the terms that `info` holds.
        order: the order of the action's mirror.
        parts: orders of further parts of the observation's mirror.
    """

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(-9.0, 9.0, (4,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    reward_terms = {"ahead": (0,), "aside": (1,)}  # noqa: RUF012

    def __init__(self, reported=("ahead", "aside"), order=(0, 1), parts=()):
        self._reported = reported
        self.mirror = Mirror(
            {
                "observation": Reflection((0, 1, 2, 3), (1.0, -1.0, 1.0, -1.0)),
                **{key: Reflection(tuple(order)) for key, order in dict(parts).items()},
            },
            Reflection(tuple(order), (1.0, -1.0)),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._goal = np.zeros(2), self.np_random.uniform(-1, 1, 2)
        self._steps = 0
        return self._observe(), {}

    def _observe(self):
        return np.concatenate([self._place, self._goal]).astype(np.float32)

    def step(self, action):
        self._place = self._place + 0.5 * np.asarray(action, float)
        self._steps += 1
        ahead, aside = (-np.abs(self._place - self._goal)).tolist()
        terms = {"ahead": ahead, "aside": aside}
        info = {"reward_terms": {name: terms[name] for name in self._reported}}
        return self._observe(), ahead + aside, False, self._steps >= 6, info


gymnasium.register("Cart-v0", lambda **settings: Cart(**settings))
