"""Success rate of an exported policy: `deploy.runtime` in the policy's environment."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from deploy.runtime import Policy
from training.analysis.intervals import mean_interval, share_interval
from training.collect.episode import Episode, run_episode
from training.command.files import write_atomically

SUCCESS = "success.json"
"""File of an exported folder with the outcomes of its model's episodes."""


class _Alone:
    """The runtime with the interface of policies in the episode loop."""

    def __init__(self, folder: Path) -> None:
        self._policy = Policy(folder)

    def reset(self) -> None:
        self._policy.reset()

    def act(self, observation: Any) -> Any:
        return self._policy.act(observation)[()]  # a choice is a number, and no array


def played(
    folder: Path, env: gymnasium.Env[Any, Any], seeds: Sequence[int], agent: Any
) -> dict[str, Any]:
    """Run one episode per seed with the model of a folder and write the results beside it."""
    policy = _Alone(folder)
    episodes = [run_episode(env, policy, seed) for seed in seeds]
    found = {
        "name": agent.name, "env": agent.env_id, "env_settings": agent.env_settings,
        "seeds": list(seeds), **summary(episodes),
    }  # fmt: skip
    write_atomically(folder / SUCCESS, (json.dumps(found, indent=1) + "\n").encode())
    return found


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Success and reward of episodes, with intervals of 95 %; None where there are none."""
    rewards = np.array([[one.reward for one in episodes]])
    successes = np.array([[one.success for one in episodes if one.success is not None]], float)
    several = len(episodes) > 1
    return {
        "episodes": len(episodes),
        "success_rate": float(successes.mean()) if successes.size else None,
        "success_interval_95": share_interval(successes) if successes.size and several else None,
        "reward_mean": float(rewards.mean()),
        "reward_interval_95": mean_interval(rewards) if several else None,
    }
