"""Short episodes of BimanualSweep-v0 and their fingerprints, in this process or another."""

import hashlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import envs
from envs.bimanual_sweep import BimanualSweepEnv

Act = Callable[[BimanualSweepEnv], np.ndarray]


def make(**settings: Any) -> BimanualSweepEnv:
    """Create an environment, by default without images."""
    env = gymnasium.make(envs.BIMANUAL_SWEEP, **({"images": False} | settings)).unwrapped
    assert isinstance(env, BimanualSweepEnv)
    return env


def expert(env: BimanualSweepEnv) -> np.ndarray:
    return env.expert_action()


def still(env: BimanualSweepEnv) -> np.ndarray:
    return np.zeros(12, np.float32)


def constant(left: list[float], right: list[float]) -> Act:
    """A policy that moves both tools by the same six changes at every step."""
    return lambda env: np.array(left + right, np.float32)


def random(seed: int) -> Act:
    """A policy that draws from the whole action space."""
    rng = np.random.default_rng(seed)
    return lambda env: rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)


def fingerprint(env: BimanualSweepEnv, seed: int, steps: int = 12, act: Act = expert) -> str:
    """Hash of all observations, rewards and infos of an episode's first steps."""
    digest = hashlib.sha256()
    observation, info = env.reset(seed=seed)
    for _ in range(steps):
        digest.update(observation["rgb"].tobytes() + observation["pose"].tobytes())
        digest.update(repr(sorted(info.items())).encode())
        observation, reward, _, _, info = env.step(act(env))
        digest.update(np.float64(reward).tobytes())
    digest.update(env._balls_m.tobytes())
    return digest.hexdigest()


def fresh_fingerprint(seed: int, settings: dict[str, Any]) -> str:
    """Fingerprint of a fresh environment."""
    env = make(**settings)
    try:
        return fingerprint(env, seed)
    finally:
        env.close()


def play(env: BimanualSweepEnv, seed: int, act: Act, steps: int = 400) -> float:
    """Fraction in bowls after an episode, which ends early where the expert is done."""
    env.reset(seed=seed)
    for _ in range(steps):
        _, fraction, _, truncated, _ = env.step(act(env))
        if truncated or (act is expert and env.expert_done):
            break
    return float(fraction)
