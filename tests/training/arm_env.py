"""An arm with a gripper: actions and observations of several parts, nested, and an expert."""

import gymnasium
import numpy as np
from gymnasium import spaces


class ArmEnv(gymnasium.Env):
    """The hand must reach a goal, and the gripper must be as wide as asked; ten steps."""

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def __init__(self, speed=(0.3, 0.3), limits: "tuple[float, ...] | None" = None, config=None):
        if not isinstance(speed, tuple) or not isinstance(limits, tuple | None):
            raise TypeError(f"speed and limits must be tuples, got {speed!r} and {limits!r}")
        box = spaces.Box(-1, 1, tuple.__add__((config or {}).get("shape", ()), (2,)), np.float32)
        self.observation_space = spaces.Dict(
            {
                "arm": spaces.Dict({"hand": box, "goal": box}),
                "mission": spaces.Text(9),
                "width": spaces.Tuple((spaces.Discrete(3),)),
            }
        )
        self.action_space = spaces.Dict(
            {
                "arm": box,
                "gripper": spaces.Discrete(3),
                "tools": spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(2, start=5))),
            }
        )
        self._speed = np.array(speed)

    def _observe(self):
        arm = {"hand": np.float32(self._hand), "goal": np.float32(self._goal)}
        return {"arm": arm, "mission": "reach", "width": (self._width,)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._hand, self._goal = self.np_random.uniform(-1, 1, (2, 2))
        self._width, self._t = int(self.np_random.integers(3)), 0
        return self._observe(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is no action")
        self._hand = np.clip(self._hand + self._speed * action["arm"], -1, 1)
        self._t += 1
        away, fits = np.linalg.norm(self._hand - self._goal), action["gripper"] == self._width
        info = {"success": bool(away < 0.2 and fits)}
        return self._observe(), float(fits - away), False, self._t >= 10, info

    def expert_action(self):
        arm = np.clip((self._goal - self._hand) / self._speed, -1, 1).astype(np.float32)
        return {"arm": arm, "gripper": self._width, "tools": (np.zeros(2, np.int8), 5)}


class Shifted(gymnasium.ActionWrapper):
    """Acts in another space."""

    def __init__(self, env, by: tuple[float, float]):
        super().__init__(env)
        arm = spaces.Box(-1 + min(by), 1 + max(by), (2,), np.float32)
        self.action_space = spaces.Dict({**env.action_space.spaces, "arm": arm})
        self._by = np.float32(by)

    def action(self, action):
        return {**action, "arm": np.clip(action["arm"] - self._by, -1, 1)}


gymnasium.register("Arm-v0", ArmEnv)
