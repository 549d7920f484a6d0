"""Tests whether a policy uses its images: the same scenes run with replaced images."""

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch

import envs
from envs.task import SUCCESS
from policies.common.scripted import Constant
from training.analysis.agents import Agent
from training.analysis.arguments import EVALUATION_SEED, INTERVENTIONS
from training.analysis.constant import action_of, best_constant
from training.analysis.replacements import (
    Altered,
    Images,
    Substitute,
    image_keys,
    recorder,
    substitute,
)
from training.collect.callables import as_policy
from training.collect.checked import EnvironmentFault, checked
from training.collect.episode import Episode, Policy, run_episode
from training.collect.pool import WorkerDiedError, temporary_pool
from training.command.errors import did_you_mean
from training.command.progress import watched
from training.interventions.report import (
    ALL,
    EPISODES,
    SMALLEST_LOSS,
    Play,
    Report,
    Scene,
    report,
)
from training.io.config import UserError


@dataclass(frozen=True)
class Given:
    """A policy and an environment factory given in Python, used as an `Agent` is."""

    policy: Any
    make_env: Callable[[], gymnasium.Env]

    def make_policy(self, env: gymnasium.Env) -> Policy:
        """The policy for an environment."""
        return as_policy(self.policy, env)

    def for_episode(self, policy: Policy, env: gymnasium.Env, seed: int) -> Policy:
        """The same policy for every episode."""
        return policy


@dataclass(frozen=True)
class Task:
    """The seed of a scene, and that of the other scene whose images are shown in it."""

    seed: int
    lender: int

    def __str__(self) -> str:
        return f"the episodes with seed {self.seed}"


class Stage:
    """Runs scenes in one environment with one policy; an outcome depends on the scene's seed alone.

    Args:
        subject: the policy and environment under test.
        groups: keys of the images that are replaced together, by name; all images under `ALL`.
        kinds: the interventions.
        constant: the best constant action, as plain numbers; None if there is none.
    """

    def __init__(
        self,
        subject: Agent | Given,
        groups: Mapping[str, list[str]],
        kinds: Collection[str],
        constant: Any = None,
    ) -> None:
        torch.set_num_threads(1)
        self._subject, self._groups, self._kinds = subject, groups, kinds
        self._constant = constant
        self._env = subject.make_env()
        self._policy = subject.make_policy(self._env)
        self._task = envs.task_of(self._env)

    def run(self, task: Task) -> Scene:
        """Run a scene.

        The other scene, whose images are replacements, runs first, the rest in random order:
        otherwise a policy that changes between episodes would favour the first condition."""
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
                self._outcomes(episode), not _alike(actions, agent.actions),
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
        """Policies without observations, by name: random actions, zeros where they are allowed, and
        the best constant action."""
        space = copy.deepcopy(self._env.action_space)
        space.seed(_derived(seed, 2))
        floors = {"random actions": as_policy(lambda _: space.sample(), self._env)}
        if isinstance(space, gymnasium.spaces.Box) and (
            (space.low <= 0).all() and (space.high >= 0).all()
        ):
            nothing = np.zeros(space.shape, space.dtype)
            floors["no action"] = as_policy(lambda _: nothing.copy(), self._env)
        is_known = "no action" in floors and not np.any(self._constant)
        if self._constant is not None and not is_known:
            action = action_of(self._env.action_space, self._constant)
            floors["the best constant action"] = Constant(action)
        return floors

    def _episode(self, seed: int, policy: Policy, on_step: Any = None) -> Episode:
        with torch.no_grad():
            return run_episode(self._env, policy, seed, on_step=on_step)

    def _outcomes(self, episode: Episode) -> dict[str, float]:
        """Reward and the task's first outcome, or success if the environment has no description.
        Values that are not finite are omitted.
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


def sight(
    policy: Any,
    make_env: Callable[[], gymnasium.Env],
    *,
    seeds: Sequence[int] = range(EVALUATION_SEED, EVALUATION_SEED + EPISODES),
    images: Collection[str] = (),
    interventions: Collection[str] = INTERVENTIONS,
    smallest_loss: float = SMALLEST_LOSS,
    workers: int = 1,
    name: str = "policy",
) -> Report:
    """Test whether a policy uses its images.

    Args:
        policy: an object with `act(observation)` and, if it has state, `reset()`; a function of
            an observation; or a class of such objects, which is called with the environment.
        make_env: makes the environment, which is closed again.
        seeds: distinct seeds of the scenes; as many seeds after the largest provide the
            replacement images.
        images: parts of the observation that are replaced; default: all images.
        interventions: some of `INTERVENTIONS`; swap and freeze decide.
        smallest_loss: share of the policy's margin over the floor below which a loss does not
            matter.
        workers: number of processes; with several, `policy` and `make_env` are pickled.
        name: name of the policy in the report.

    Raises UserError if there are no images, or a number is not finite.
    """
    subject = Given(policy, partial(checked, make_env))
    return sight_of(subject, name, seeds, images, interventions, smallest_loss, workers)


def sight_of(
    subject: Agent | Given,
    name: str,
    seeds: Sequence[int],
    images: Collection[str],
    interventions: Collection[str],
    smallest_loss: float,
    workers: int,
    progress: bool = False,
) -> Report:
    """Like `sight`, but also for an agent, and with a progress bar."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds must be at least one, all different, got {list(seeds)}")
    unknown = [kind for kind in interventions if kind not in INTERVENTIONS]
    if unknown or not interventions:
        raise UserError(
            f"interventions must be some of {', '.join(INTERVENTIONS)}, got {', '.join(unknown)}"
        )
    with subject.make_env() as env:
        identity, task = envs.name_of(env), envs.task_of(env)
        keys = _chosen(env, identity, images)
        try:
            constant = best_constant(env)
        except (FloatingPointError, EnvironmentFault) as error:
            raise UserError(f"{name}: {error}") from None
    groups = {ALL: keys} | ({key: [key] for key in keys} if len(keys) > 1 else {})
    tasks = [Task(seed, max(seeds) + 1 + i) for i, seed in enumerate(seeds)]
    kinds = [kind for kind in INTERVENTIONS if kind in interventions]
    make = partial(Stage, subject, groups, kinds, constant)
    try:
        with (
            temporary_pool(make, min(workers, len(tasks))) as pool,
            closing(pool.in_order(tasks)) as results,
        ):
            scenes = list(watched(results, name, len(tasks), "scene", progress))
    except (FloatingPointError, EnvironmentFault, WorkerDiedError) as error:
        raise UserError(f"{name}: {error}") from None
    headline = None if task is None else task.headline_outcome
    lower_is_better = [headline.name] if headline and headline.better == "down" else []
    return report(name, identity, scenes, smallest_loss, lower_is_better)


def _chosen(env: gymnasium.Env, identity: str, images: Collection[str]) -> list[str]:
    """The parts of the observation that are replaced. Raises UserError if there are none."""
    there = image_keys(env.observation_space, tables=bool(images))
    if not there:
        raise UserError(
            f"{identity} has no images: no part of its observation is a Box of 2 to 4 dimensions, "
            "tables of numbers aside"
        )
    for key in images:
        if key not in there:
            raise UserError(
                f"{key} is no image of {identity}, whose images are {', '.join(there)}"
                f"{did_you_mean(key, there)}"
            )
    return [key for key in there if key in images or not images]
