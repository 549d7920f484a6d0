"""A camera that follows a light over a noisy wall: an environment in twenty lines."""

import gymnasium
import numpy as np

from envs.geometry import Mirror, Reflection


class FollowLight(gymnasium.Env):
    """Sees (side, side, 3) uint8; acts by the camera's speed rightwards and downwards, -1 to 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    reward_terms = {"across": (0,), "down": (1,)}  # the numbers of the action that each term judges

    def __init__(self, render_mode=None, side=32):
        self.render_mode, self.side = render_mode, side
        self.observation_space = gymnasium.spaces.Box(0, 255, (side, side, 3), np.uint8)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        columns = Reflection(tuple(range(side))[::-1], axis=-2)
        self.mirror = Mirror({"observation": columns}, Reflection((0, 1), (-1.0, 1.0)))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.light = self.np_random.uniform(-1, 1, 2)
        return self.look(), {}

    def step(self, action):
        self.light = np.clip(self.light - 0.2 * action + self.np_random.normal(0, 0.05, 2), -1, 1)
        reward = 1 - float(np.linalg.norm(self.light))
        terms = dict(zip(self.reward_terms, 1 - np.abs(self.light), strict=True))
        return self.look(), reward, False, False, {"success": reward > 0.8, "reward_terms": terms}

    def look(self):
        self.image = self.np_random.integers(0, 120, (self.side, self.side, 3), np.uint8)
        column, row = ((self.light + 1) / 2 * (self.side - 4)).astype(int)
        self.image[row : row + 4, column : column + 4] = 255
        return self.image

    def render(self):
        return self.image


gymnasium.register("FollowLight-v0", entry_point=FollowLight, max_episode_steps=50)
