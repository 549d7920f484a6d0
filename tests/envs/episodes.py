"""Short episodes of the environments and their fingerprints, in this process or another."""

import hashlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import envs

Act = Callable[[gymnasium.Env], np.ndarray]


def make(**settings: Any) -> gymnasium.Env:
    """An environment of stepping stones."""
    return gymnasium.make(envs.STEPPING_STONES, **settings)


def expert(env: gymnasium.Env) -> np.ndarray:
    return env.get_wrapper_attr("expert_action")()


def still(env: gymnasium.Env) -> np.ndarray:
    return np.zeros(env.action_space.shape, np.float32)


def random(seed: int) -> Act:
    """A policy that draws from the whole action space."""
    rng = np.random.default_rng(seed)
    return lambda env: rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)


def parts(observation: Any) -> dict[str, np.ndarray]:
    return observation if isinstance(observation, dict) else {"observation": observation}


def fingerprint(
    env: gymnasium.Env, seed: int, steps: int = 12, act: Act = expert, **reset: Any
) -> str:
    """Hash of all observations, rewards and infos of an episode's first steps."""
    digest = hashlib.sha256()
    observation, info = env.reset(seed=seed, **reset)
    ended = False
    for _ in range(steps):
        digest.update(b"".join(part.tobytes() for part in parts(observation).values()))
        digest.update(repr(sorted(info.items())).encode())
        if ended:
            break
        observation, reward, terminated, truncated, info = env.step(act(env))
        digest.update(np.float64(reward).tobytes())
        ended = terminated or truncated
    digest.update(getattr(env.unwrapped, "_balls_m", np.empty(0)).tobytes())
    return digest.hexdigest()


def fresh_fingerprint(env_id: str, seed: int, settings: dict[str, Any], act: Act = expert) -> str:
    """Fingerprint of a fresh environment."""
    with gymnasium.make(env_id, **settings) as env:
        return fingerprint(env, seed, act=act)
