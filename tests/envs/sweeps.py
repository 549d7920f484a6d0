"""Short episodes of BimanualSweep-v0."""

from typing import Any

import gymnasium
import numpy as np

import envs
from envs.bimanual_sweep import BimanualSweepEnv
from tests.envs.episodes import Act, expert


def make(**settings: Any) -> BimanualSweepEnv:
    """Create an environment, by default without images."""
    env = gymnasium.make(envs.BIMANUAL_SWEEP, **({"images": False} | settings)).unwrapped
    assert isinstance(env, BimanualSweepEnv)
    return env


def constant(left: list[float], right: list[float]) -> Act:
    """A policy that moves both tools by the same six changes at every step."""
    return lambda env: np.array(left + right, np.float32)


def play(env: BimanualSweepEnv, seed: int, act: Act, steps: int = 400) -> float:
    """Fraction in bowls after an episode, which ends early where the expert is done."""
    env.reset(seed=seed)
    for _ in range(steps):
        _, fraction, _, truncated, _ = env.step(act(env))
        if truncated or (act is expert and env.expert_done):
            break
    return float(fraction)
