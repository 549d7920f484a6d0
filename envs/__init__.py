"""PyBullet environments in Gymnasium form; importing this package registers them."""

import gymnasium

__all__ = ["BIMANUAL_SWEEP", "STEPPING_STONES"]

BIMANUAL_SWEEP = "BimanualSweep-v0"
STEPPING_STONES = "SteppingStones-v0"

if STEPPING_STONES not in gymnasium.registry:
    gymnasium.register(STEPPING_STONES, entry_point="envs.stepping_stones.env:SteppingStonesEnv")

if BIMANUAL_SWEEP not in gymnasium.registry:
    gymnasium.register(BIMANUAL_SWEEP, entry_point="envs.bimanual_sweep.env:BimanualSweepEnv")
