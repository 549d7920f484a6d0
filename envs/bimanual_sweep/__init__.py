"""The bi-manual sweeping task: two arms with spatulas, balls and bowls."""

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.env import BimanualSweepEnv

__all__ = ["BimanualSweepConfig", "BimanualSweepEnv"]
