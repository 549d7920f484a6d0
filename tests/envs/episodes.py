"""Short episodes of SteppingStones-v0 and their fingerprints, in this process or another."""

import hashlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import envs

Act = Callable[[gymnasium.Env], np.ndarray]


def make(**settings: Any) -> gymnasium.Env:
    return gymnasium.make(envs.STEPPING_STONES, **settings)


def expert(env: gymnasium.Env) -> np.ndarray:
    return env.get_wrapper_attr("expert_action")()


def blind(env: gymnasium.Env) -> np.ndarray:
    return np.zeros(9, np.float32)


def fingerprint(
    env: gymnasium.Env, seed: int, steps: int = 40, act: Act = expert, **reset: Any
) -> str:
    """Hash of all observations, rewards and infos of an episode's first steps."""
    digest = hashlib.sha256()
    observation, info = env.reset(seed=seed, **reset)
    ended = False
    for _ in range(steps):
        digest.update(observation["depth"].tobytes() + observation["proprio"].tobytes())
        digest.update(repr(sorted(info.items())).encode())
        if ended:
            break
        observation, reward, terminated, truncated, info = env.step(act(env))
        digest.update(np.float64(reward).tobytes())
        ended = terminated or truncated
    return digest.hexdigest()


def fresh_fingerprint(seed: int, settings: dict[str, Any]) -> str:
    """Fingerprint of a fresh environment."""
    with make(**settings) as env:
        return fingerprint(env, seed)
