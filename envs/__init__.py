"""PyBullet environments in Gymnasium form; importing this package registers them."""

import gymnasium

__all__ = ["STEPPING_STONES"]

STEPPING_STONES = "SteppingStones-v0"

if STEPPING_STONES not in gymnasium.registry:
    gymnasium.register(STEPPING_STONES, entry_point="envs.stepping_stones.env:SteppingStonesEnv")
