"""The episodes of a test of whether a policy uses its images, grouped by scene."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch

import envs
from envs.task import SUCCESS
from training.collect.callables import as_policy
from training.collect.episode import Episode, Policy, run_episode
from training.interventions.images import Altered, Images, Substitute, recorder, substitute

__all__ = ["ALL", "Given", "Play", "Scene", "Stage", "Subject", "Task"]

ALL = "all"
"""The name of all images together."""


class Subject(Protocol):
    """The policy and environment under test: an `Agent`, or objects given in Python."""

    def make_env(self) -> gymnasium.Env:
        """The environment, open."""

    def make_policy(self, env: gymnasium.Env) -> Policy:
        """The policy for it."""

    def for_episode(self, policy: Policy, env: gymnasium.Env, seed: int) -> Policy:
        """The policy for one episode."""


@dataclass(frozen=True)
class Given:
    """A policy and an environment factory given in Python."""

    policy: Any
    env: Callable[[], gymnasium.Env]

    def make_env(self) -> gymnasium.Env:
        """The environment, open."""
        return self.env()

    def make_policy(self, env: gymnasium.Env) -> Policy:
        """The policy for it."""
        return as_policy(self.policy, env)

    def for_episode(self, policy: Policy, env: gymnasium.Env, seed: int) -> Policy:
        """The same policy for every episode."""
        return policy


@dataclass(frozen=True)
class Task:
    """All episodes of one scene."""

    seed: int
    """Of the scene."""
    lender: int
    """Seed of the other scene, whose images are lent."""

    def __str__(self) -> str:
        return f"the episodes with seed {self.seed}"


@dataclass(frozen=True)
class Play:
    """The outcome of an episode."""

    outcomes: dict[str, float]
    steps: int
    otherwise: bool = False
    """Whether an action was another than with the policy's own images."""
    differed: float = 0.0
    """Share of the steps at which an image was not the one that would have been seen."""


@dataclass(frozen=True)
class Scene:
    """All episodes of one seed."""

    seed: int
    own: Play
    floors: dict[str, Play]
    """Of policies that cannot look, by name."""
    altered: dict[tuple[str, str], Play]
    """By what images were replaced, and the intervention."""


class _Anyhow:
    """Random actions of any action space."""

    def __init__(self, space: gymnasium.Space[Any], seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> Any:
        """Any action."""
        return self._space.sample()


class Stage:
    """Plays scenes in one environment with one policy; an outcome depends on the scene's seed
    alone.

    Args:
        subject: who plays.
        groups: keys of the images that are replaced together, by name; all images under `ALL`.
        kinds: the interventions.
    """

    def __init__(
        self, subject: Subject, groups: Mapping[str, list[str]], kinds: Collection[str]
    ) -> None:
        torch.set_num_threads(1)
        self._subject, self._groups, self._kinds = subject, groups, kinds
        self._env = subject.make_env()
        self._policy = subject.make_policy(self._env)
        self._task = envs.task_of(self._env)

    def run(self, task: Task) -> Scene:
        """Play a scene.

        The other scene, whose images are lent, is played first, the rest in random order: otherwise
        a policy that changes during play would favour the first condition.
        """
        lent: list[Images] = []
        self._episode(task.lender, self._own(task.lender), recorder(self._groups[ALL], lent))
        plans: dict[Any, tuple[Policy | None, list[str], Substitute | None]] = {
            (group, kind): (None, keys, substitute(kind, lent, _derived(task.seed, 1)))
            for group, keys in self._groups.items()
            for kind in self._kinds
        }
        altered, floors = list(plans), self._floors(task.seed)
        plans |= {name: (policy, [], None) for name, policy in floors.items()}
        plans[None] = (None, [], None)
        names, played = list(plans), {}
        for i in np.random.default_rng(_derived(task.seed, 0)).permutation(len(names)):
            policy, keys, shown = plans[names[i]]
            agent = Altered(policy or self._own(task.seed), keys, shown)
            played[names[i]] = self._episode(task.seed, agent), agent
        actions = played[None][1].actions
        plays = {
            name: Play(
                self._outcomes(episode), episode.steps, not _alike(actions, agent.actions),
                agent.differed / episode.steps,
            )
            for name, (episode, agent) in played.items()
        }  # fmt: skip
        return Scene(
            task.seed, plays[None], {name: plays[name] for name in floors},
            {key: plays[key] for key in altered},
        )  # fmt: skip

    def _own(self, seed: int) -> Policy:
        self._policy = self._subject.for_episode(self._policy, self._env, seed)
        return self._policy

    def _floors(self, seed: int) -> dict[str, Policy]:
        space = self._env.action_space
        floors: dict[str, Policy] = {"random actions": _Anyhow(space, _derived(seed, 2))}
        if isinstance(space, gymnasium.spaces.Box) and (
            (space.low <= 0).all() and (space.high >= 0).all()
        ):
            nothing = np.zeros(space.shape, space.dtype)
            floors["no action"] = as_policy(lambda _: nothing.copy(), self._env)
        return floors

    def _episode(self, seed: int, policy: Policy, on_step: Any = None) -> Episode:
        with torch.no_grad():
            return run_episode(self._env, policy, seed, on_step=on_step)

    def _outcomes(self, episode: Episode) -> dict[str, float]:
        """Reward and the task's first outcome, or success if the environment has no description.
        Values that are not numbers are omitted.
        """
        name = SUCCESS if self._task is None else self._task.headline
        found = {"reward": episode.reward}
        if name == SUCCESS and episode.success is not None:
            found[name] = float(episode.success)
        elif name in episode.outcomes:
            found[name] = episode.outcomes[name]
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _derived(seed: int, use: int) -> int:
    """A separate seed for each use, as the environment's generator uses the scene's seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(use,)).generate_state(1)[0])


def _alike(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))
