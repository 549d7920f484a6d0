"""Tests whether a policy uses its images: scenes are replayed with replaced images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium

import envs
from training.analysis.agents import EVALUATION_SEED
from training.collect.pool import WorkerDiedError, temporary_pool
from training.command.errors import did_you_mean
from training.command.progress import watched
from training.interventions.images import INTERVENTIONS, image_keys
from training.interventions.play import ALL, Given, Scene, Stage, Subject, Task
from training.interventions.report import Report, report
from training.io.config import UserError

__all__ = ["EPISODES", "SMALLEST_LOSS", "sight", "sight_of"]

EPISODES, SMALLEST_LOSS = 20, 0.2
"""Scenes of a test, and the share of what a policy has that counts as lost, by default."""


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
    return sight_of(
        Given(policy, make_env), name, seeds, images, interventions, smallest_loss, workers
    )


def sight_of(
    subject: Subject,
    name: str,
    seeds: Sequence[int],
    images: Collection[str],
    interventions: Collection[str],
    smallest_loss: float,
    workers: int,
    progress: bool = False,
) -> Report:
    """As `sight`, also for an agent, with a progress bar."""
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
    groups = {ALL: keys}
    if len(keys) > 1:
        groups |= {key: [key] for key in keys}
    tasks = [Task(seed, max(seeds) + 1 + i) for i, seed in enumerate(seeds)]
    make = partial(Stage, subject, groups, [k for k in INTERVENTIONS if k in interventions])
    scenes = _play(make, tasks, min(workers, len(tasks)), name, progress)
    headline = None if task is None else task.headline_outcome
    lower_is_better = [headline.name] if headline and headline.better == "down" else []
    return report(name, identity, scenes, smallest_loss, lower_is_better)


def _chosen(env: gymnasium.Env, identity: str, images: Collection[str]) -> list[str]:
    """The parts of the observation that are replaced. Raises UserError if there are none."""
    there = image_keys(env.observation_space)
    if not there:
        raise UserError(
            f"{identity} has no images: no part of its observation is a Box of 2 to 4 dimensions"
        )
    for key in images:
        if key not in there:
            raise UserError(
                f"{key} is no image of {identity}, whose images are {', '.join(there)}"
                f"{did_you_mean(key, there)}"
            )
    return [key for key in there if key in images or not images]


def _play(
    make: Callable[[], Stage], tasks: Sequence[Task], workers: int, name: str, progress: bool
) -> list[Scene]:
    try:
        with temporary_pool(make, workers) as pool, closing(pool.in_order(tasks)) as results:
            return list(watched(results, name, len(tasks), "scene", progress))
    except (FloatingPointError, WorkerDiedError) as error:
        raise UserError(f"{name}: {error}") from None
