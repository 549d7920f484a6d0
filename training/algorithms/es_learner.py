"""The training loop of evolution strategies, and what a run goes on from."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

import envs
import policies
from policies.common.feature_maps import map_state
from policies.common.seeing import SeeingPolicy as Policy
from training.algorithms import lifecycle, searchers
from training.algorithms.es_config import ESConfig
from training.algorithms.lifecycle import state_of
from training.algorithms.map_fitting import OBSERVATIONS, announce, evenly, is_due, sound
from training.algorithms.workers import (
    EpisodeWorker,
    Outcome,
    Task,
    explained,
    get_parameters,
    set_parameters,
)
from training.collect import environments
from training.collect.crew import Pool
from training.collect.outcomes import episode_columns, episode_values
from training.collect.seeds import derived_seeds
from training.io import checkpoint, run_log
from training.io import config as configuration
from training.io.config import UserError
from training.io.state_files import Count, Finite, State

__all__ = ["columns", "prepare", "train"]

_MOST_POPULATION = 5 * 10**7


def columns(env_id: str) -> tuple[str, ...]:
    """Of metrics.csv."""
    return (*episode_columns(envs.find_task(env_id)), "level", "sigma", "wall_s")


@dataclass(config=ConfigDict(extra="forbid"))
class Progress:
    """Counters of a run; with the policy and the searcher, all that a checkpoint holds."""

    iteration: Count = 0
    env_steps: Count = 0
    episodes: Count = 0
    level: Count = 0
    fitted: bool = False
    """Whether the policy's feature maps are fitted to its queries and keys."""
    recent_success: list[Finite] = field(default_factory=list)
    """Population's success rates at this level, the last `advance_window` of them."""

    def advance(self, config: ESConfig, success_rate: float) -> None:
        """Go to the next level of the curriculum when this one is mastered."""
        self.recent_success = [*self.recent_success, success_rate][-config.advance_window :]
        mastered = (
            len(self.recent_success) == config.advance_window
            and float(np.mean(self.recent_success)) >= config.advance_at
        )
        if mastered and self.level + 1 < len(config.curriculum):
            self.level += 1
            self.recent_success = []


@dataclass(frozen=True, config=State)
class _Saved:
    """What a run goes on from, beside tensors."""

    progress: Progress
    search: dict[str, Finite]


_SEARCH, _CENTER, _POPULATION, _FIRST_PAIR = 0, 1, 2, 3


def make_tasks(
    config: ESConfig, progress: Progress, center: torch.Tensor, population: torch.Tensor,
    statistics: policies.RunningStatistics, maps: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> list[Task]:  # fmt: skip
    """The iteration's episodes: the centre's, then every candidate's, terrain by terrain."""
    fitting = is_due(config.fit_after, progress.fitted, progress.iteration)
    kept = math.ceil(OBSERVATIONS / config.center_terrains) if fitting else 0
    options = dict(config.curriculum[progress.level]) if config.curriculum else {}

    def seeds(group: int, count: int) -> list[int]:
        return derived_seeds(config.seed, progress.iteration, group, count)

    pairs = config.common_terrains == "pair"
    centers = seeds(_CENTER, config.center_terrains)
    tasks = [Task(center, statistics, s, options, dict(maps), kept) for s in centers]
    # Copies: a view of the population would be sent to a worker with all of it.
    for index, candidate in enumerate([candidate.clone() for candidate in population]):
        group = _FIRST_PAIR + index // 2 if pairs else _POPULATION
        tasks += [
            Task(candidate, statistics, s, options, dict(maps))
            for s in seeds(group, config.terrains)
        ]
    return tasks


def merge_statistics(policy: Policy, outcomes: list[Outcome]) -> None:
    """Add what all episodes measured, in order, to the policy's normaliser."""
    total = policy.normaliser.statistics
    for outcome in outcomes:
        total = total.merge(outcome.statistics)
    policy.normaliser.statistics = total


def fit_maps(
    config: ESConfig, policy: Policy, searcher: searchers.Searcher, progress: Progress,
    outcomes: list[Outcome],
) -> None:  # fmt: skip
    """Fit the centre's feature maps, when that is due, to what its episodes saw."""
    if not is_due(config.fit_after, progress.fitted, progress.iteration):
        return
    seen = [observation for outcome in outcomes for observation in outcome.observations]
    chosen = [seen[i] for i in evenly(len(seen), OBSERVATIONS)]
    stacked = {key: torch.from_numpy(np.stack([one[key] for one in chosen])) for key in chosen[0]}
    set_parameters(policy, searcher.center)
    with sound():
        policy.fit_attention(stacked)
    progress.fitted = True


class Job(lifecycle.Job[ESConfig]):
    """What a run begins with, the searcher too."""

    def prepare(self) -> None:
        """The searcher, as `start` has it."""
        self.step_s = environments.step_s(self.env)
        config, start, parameters = self.config, self.start, get_parameters(self.policy)
        _check_population(config, len(parameters))
        try:
            self.searcher = searchers.build(config.searcher, parameters, config.popsize)
        except ValueError as error:
            raise UserError(str(error)) from None
        if start is None:
            return
        tensors, numbers = self.searcher.state()
        checkpoint.check_tensors(start.path, "searcher", start.search, tensors)
        saved = state_of(start, _Saved).search
        if saved.keys() != numbers.keys():
            raise UserError(
                f"{start.path} is of another searcher: search holds the numbers "
                f"{', '.join(saved) or 'none'}, where {', '.join(numbers) or 'none'} are needed"
            )
        self.searcher.load_state(start.search, saved)


prepare = Job


def _check_population(config: ESConfig, parameters: int) -> None:
    """UserError for one that fits in no memory."""
    if config.popsize * parameters > _MOST_POPULATION:
        raise UserError(
            f"popsize = {config.popsize} candidates of the policy's {parameters} parameters are "
            f"{config.popsize * parameters} numbers, where there can be at most {_MOST_POPULATION}"
        )


def save(job: Job, run: Path, progress: Progress) -> None:
    """Write the iteration's checkpoint (the policy at the search's centre); drop old ones."""
    set_parameters(job.policy, job.searcher.center)
    tensors, numbers = job.searcher.state()
    state = {"progress": dataclasses.asdict(progress), "search": numbers}
    plain = configuration.dump(job.config)
    checkpoint.save_in_run(run, progress.iteration, job.policy, tensors, plain, state)


def train(job: Job, run: Path) -> None:
    """Train in the run directory `run`."""
    config, policy, start, searcher = job.config, job.policy, job.start, job.searcher
    progress = Progress(fitted=job.fitted)
    if start is None:
        save(job, run, progress)
    else:
        progress = state_of(start, _Saved).progress
        if progress.level >= max(1, len(config.curriculum)):
            raise UserError(
                f"{start.path} is at level {progress.level}, which the curriculum does not have"
            )
    print(f"{len(searcher.center)} parameters, {config.searcher.name}, in {run}", flush=True)
    if progress.iteration >= config.iterations:
        return
    announce(policy, config.fit_after, progress.fitted, config.iterations)
    make = partial(EpisodeWorker, policy.state_dict(), *job.settings)
    with job.opened(make, run, progress.iteration) as (pool, log):
        learn(job, run, progress, pool, log)


def learn(
    job: Job, run: Path, progress: Progress, pool: Pool[Task, Outcome], log: run_log.RunLog
) -> None:
    """The training loop: ask, evaluate, tell, log, save."""
    config, policy, searcher, step_s = job.config, job.policy, job.searcher, job.step_s
    task, earlier_s = envs.find_task(config.env_id), float(log.last.get("wall_s", 0.0))
    began = time.perf_counter()
    while progress.iteration < config.iterations:
        lap = time.perf_counter()
        progress.iteration += 1

        population = searcher.ask(derived_seeds(config.seed, progress.iteration, _SEARCH, 1)[0])
        statistics = policy.normaliser.statistics
        maps = map_state(policy) if progress.fitted else {}
        tasks = make_tasks(config, progress, searcher.center, population, statistics, maps)

        with explained():
            outcomes = pool.run(tasks)
        center = [outcome.episode for outcome in outcomes[: config.center_terrains]]
        candidates = [outcome.episode for outcome in outcomes[config.center_terrains :]]
        rewards = np.array([e.reward for e in candidates]).reshape(config.popsize, -1)
        returns = torch.from_numpy(rewards.mean(1))

        searcher.tell(population, returns)
        merge_statistics(policy, outcomes)
        fit_maps(config, policy, searcher, progress, outcomes)

        now = time.perf_counter()
        steps = sum(outcome.episode.steps for outcome in outcomes)
        judged = episode_values(task, center, candidates)
        success_rate = judged["success_rate"]
        progress.env_steps += steps
        progress.episodes += len(outcomes)
        row = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "episodes": progress.episodes,
            "reward_mean": float(returns.mean()),
            "reward_max": float(returns.max()),
            **judged,
            "level": progress.level,
            "sigma": searcher.sigma,
            "wall_s": round(earlier_s + now - began, 3),
        }
        progress.advance(config, 0.0 if math.isnan(success_rate) else success_rate)
        speed = steps / (now - lap)
        rate = f"{speed:.0f} steps/s" if math.isnan(step_s) else f"{speed * step_s:.1f} sim-s/s"
        level = f"level {row['level']}, " if config.curriculum else ""
        log.row(row, f"reward {row['center_reward']:.3g}, {level}{rate}")
        save(job, run, progress)
