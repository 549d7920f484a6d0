"""Evaluation of policies over many seeds, and the directory of its results, `evaluation.json`."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pydantic.dataclasses
import torch

from envs import Task
from training.analysis.agents import Agent
from training.analysis.floors import OtherEpisode
from training.analysis.intervals import wilson_interval
from training.analysis.step_cost import measure
from training.collect.checked import EnvironmentFault
from training.collect.environments import completed
from training.collect.episode import Episode, Policy, finite_numbers, run_episode
from training.collect.outcomes import mean_success, outcomes_of
from training.collect.pool import Pool, WorkerDiedError, temporary_pool
from training.command.files import EVALUATION as RESULTS
from training.command.files import PARETO, made_and_locked, read_bytes, reason, write_json
from training.command.progress import watched
from training.io import run_log
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint, sha256_of
from training.io.state_files import Count, Finite, State, check, plain_json


@dataclass(frozen=True)
class _Task:
    agent: Agent
    seed: int

    def __str__(self) -> str:
        return f"the episode of {self.agent.name} with seed {self.seed}"


class _Stage:
    """Holds one open environment and policy at a time; each worker process has one."""

    def __init__(self) -> None:
        self.agent: Agent | None = None
        self.env: gymnasium.Env | None = None
        self.policy: Policy | None = None

        self._sight: OtherEpisode | None = None

    def run(self, task: _Task) -> Episode:
        """Run one episode; the result does not depend on earlier episodes."""
        agent, seed = task.agent, task.seed
        if agent != self.agent:
            self.close()
            torch.set_num_threads(1)
            self.env = agent.make_env()
            self.policy = agent.make_policy(self.env)
            self._sight = OtherEpisode(agent, self.env) if agent.blind else None
            self.agent = agent
        assert self.env is not None
        assert self.policy is not None
        with torch.no_grad():
            blinded = None if self._sight is None else self._sight.for_scene(self.policy, seed)
            self.policy = agent.for_episode(self.policy, self.env, seed)
            shown = self.policy if blinded is None else blinded(self.policy)
            episode = run_episode(self.env, shown, seed)
        return dataclasses.replace(episode, info=finite_numbers(episode.info))

    def close(self) -> None:
        if self.env is not None:
            self.env.close()
        self.agent = self.env = self.policy = self._sight = None


@contextmanager
def _open_pool(workers: int) -> Iterator[Pool[_Task, Episode]]:
    try:
        with temporary_pool(_Stage, workers) as pool:
            yield pool
    except WorkerDiedError as error:
        raise UserError(
            f"the evaluation stopped: {error}; policies evaluated before it are in the output"
        ) from None


def summarise(agent: Agent, episodes: Sequence[Episode]) -> dict[str, Any]:
    """The entry of evaluation.json that follows from the episodes alone."""
    rewards = np.array([e.reward for e in episodes])
    steps = np.array([e.steps for e in episodes])
    count, rate = len(episodes), mean_success(episodes)
    several = count > 1
    entry: dict[str, Any] = {
        "name": agent.name,
        "env": agent.env_id,
        "env_settings": agent.env_settings,
        **({} if agent.repair is None else {"repair": agent.repair}),
        **({} if agent.action is None else {"action": agent.action}),
        **({"blind": True} if agent.blind else {}),
        **({"sample_actions": True} if agent.sample_actions else {}),
        "seeds": [e.seed for e in episodes],
        "episodes": count,
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std(ddof=1)) if several else 0.0,
        "reward_sem": standard_error(rewards),
        "reward_per_step_mean": float((rewards / steps).mean()),
        "success_rate": None if math.isnan(rate) else rate,
        "success_interval_95": (
            None if math.isnan(rate) else list(wilson_interval(round(rate * count) / count, count))
        ),
        "steps_mean": float(steps.mean()),
    }
    if any(e.succeeded_once and not e.success for e in episodes):
        once = sum(e.succeeded_once for e in episodes) / count
        entry["success_once_rate"] = once
        entry["success_once_interval_95"] = list(wilson_interval(once, count))
    for outcome in outcomes_of(agent.task):
        values = np.array([e.outcomes.get(outcome.name, math.nan) for e in episodes])
        if not np.isfinite(values).all():
            continue
        entry[outcome.mean_name] = float(values.mean())
        if outcome.kind != "event":
            entry[f"{outcome.name}_sem"] = standard_error(values)
    return entry


def record(episode: Episode) -> dict[str, float]:
    """An episode's entry in `records`; measured values take precedence over keys of `info`."""
    measured = {"seed": episode.seed, "reward": episode.reward, "steps": episode.steps}
    return {**episode.info, **measured}


def episode_of(entry: Mapping[str, float], task: Task | None) -> Episode:
    """The episode that an entry of `records` describes."""
    info = {key: value for key, value in entry.items() if key not in ("seed", "reward", "steps")}
    return Episode(
        seed=int(entry["seed"]),
        reward=entry["reward"],
        steps=int(entry["steps"]),
        success=bool(info["success"]) if "success" in info else None,
        outcomes={one.name: info[one.name] for one in outcomes_of(task) if one.name in info},
        info=info,
    )


def standard_error(values: np.ndarray) -> float | None:
    """Standard error of the mean; None for a single value."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _add_costs(entry: dict[str, Any], agent: Agent, seed: int) -> None:
    """FLOPs, latency and parameters, measured here on an observation of the environment."""
    with agent.make_env() as env:
        policy = dataclasses.replace(agent, sample_actions=False).make_policy(env)
        observation, _ = env.reset(seed=seed)
        policy.reset()
        cost = measure(policy, observation, agent.device)
    scripted = agent.checkpoint is None or agent.blind  # no point of a trade-off
    entry |= {
        "flops_per_step": None if scripted else cost.total,
        "flops_by_component": {} if scripted else cost.flops,
        "latency_ms_per_step": cost.latency_ms,
        **({} if cost.repair_ms is None else {"repair_ms_per_step": cost.repair_ms}),
        "parameters": cost.parameters,
    }


def origin(agent: Agent) -> dict[str, Any]:
    """The provenance of an entry of evaluation.json."""
    found: dict[str, Any] = {"provenance": run_log.provenance({"env": agent.env_settings})}
    if (file := agent.checkpoint) is not None:
        found |= {"checkpoint": str(file), "checkpoint_sha256": sha256_of(file)}
    return found


def play(agent: Agent, seeds: Sequence[int], workers: int = 1) -> Iterator[Episode]:
    """Yield one episode per seed, in order. Raises UserError if an action or reward is not finite
    or a worker dies.
    """
    with _open_pool(min(workers, len(seeds))) as pool:
        yield from _episodes(pool, agent, seeds, progress=False)


def _episodes(
    pool: Pool[_Task, Episode], agent: Agent, seeds: Sequence[int], progress: bool
) -> Iterator[Episode]:
    try:
        with closing(pool.in_order([_Task(agent, seed) for seed in seeds])) as results:
            yield from watched(results, agent.name, len(seeds), "episode", progress)
    except (FloatingPointError, EnvironmentFault) as error:
        raise UserError(f"{agent.name}: {error}") from None


def evaluate(
    agents: Sequence[Agent], seeds: Sequence[int], workers: int = 1, progress: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield an entry of evaluation.json for each agent, as soon as it is measured.

    The entries do not depend on `workers`, latency excepted. Raises UserError if an action is
    not finite or a worker dies.
    """
    with _open_pool(min(workers, len(seeds))) as pool:
        for agent in agents:
            episodes = list(_episodes(pool, agent, seeds, progress))
            entry = summarise(agent, episodes)
            _add_costs(entry, agent, seeds[0])
            entry |= origin(agent)
            entry["records"] = [record(episode) for episode in episodes]
            yield entry


@pydantic.dataclasses.dataclass(frozen=True, config=State)
class Entry:
    """The fields that are read from an entry of evaluation.json."""

    name: str
    env: str
    env_settings: dict[str, Any]
    seeds: tuple[Count, ...]
    success_rate: Finite | None
    success_interval_95: tuple[Finite, Finite] | None
    reward_mean: Finite
    reward_sem: Finite | None
    flops_per_step: Count | None
    latency_ms_per_step: Finite
    parameters: Count
    checkpoint_sha256: str | None = None
    repair: str | None = None
    blind: bool = False
    sample_actions: bool = False


@contextmanager
def claim(
    out: Path | None, agents: Sequence[Agent], seeds: Sequence[int]
) -> Iterator[tuple[Path | None, list[dict[str, Any]]]]:
    """Create the output directory, check that it is writable and lock it. Yields it and the entries
    that an interrupted run of the same evaluation left there.

    Raises UserError if it holds a finished or a different evaluation.
    """
    if out is None:
        yield None, []
        return
    with made_and_locked(out) as directory:
        kept = _kept(directory, agents, seeds)
        try:
            write_entries(directory, kept)
            if not kept:
                (directory / RESULTS).unlink()
        except OSError as error:
            raise UserError(f"--out {out} cannot be written: {reason(error)}") from None
        yield directory, kept


def is_free(directory: Path, agents: Sequence[Agent], seeds: Sequence[int]) -> bool:
    """Whether its only results are those of an interrupted run of the same evaluation."""
    try:
        _kept(directory, agents, seeds)
    except UserError:
        return False
    return True


def _kept(directory: Path, agents: Sequence[Agent], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The entries of the agents that were finished when this evaluation was interrupted; [] if
    there are no results.

    Raises UserError if there are other or damaged results.
    """
    there = [name for name in (RESULTS, PARETO) if (directory / name).exists()]
    if not there:
        return []
    another, path = f"--out {directory} holds another evaluation ({there[0]})", directory / RESULTS
    try:
        entries = plain_json(read_bytes(path)) if there == [RESULTS] else []
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as results: {error}") from None
    if there == [RESULTS] and entries == []:  # a run that was killed while it made sure to write
        return []
    if not isinstance(entries, list) or not 0 < len(entries) <= len(agents):
        raise UserError(f"{another}: give another directory")
    for entry, agent in zip(entries, agents, strict=False):
        known = dataclasses.asdict(check(Entry, entry, path))
        known["env_settings"] = completed(agent.env_id, known["env_settings"])
        now = fingerprint(
            {
                "name": agent.name, "env": agent.env_id, "env_settings": agent.env_settings,
                "seeds": seeds, "checkpoint_sha256": agent.checkpoint, "repair": agent.repair,
                "blind": agent.blind, "sample_actions": agent.sample_actions,
            }
        )  # fmt: skip
        for change in differences(fingerprint({key: known[key] for key in now}), now):
            of_one = f"{known['name']} with {change.describe()}"
            raise UserError(f"{another}, of {of_one}: give another directory")
        names = [(one.mean_name, f"{one.name}_sem") for one in outcomes_of(agent.task)]
        figures = {k: entry[k] for pair in names for k in pair if entry.get(k) is not None}
        check(dict[str, Finite], figures, path)
    return entries


def write_entries(directory: Path, entries: list[dict[str, Any]]) -> None:
    """Write all entries so far. Raises OSError."""
    write_json(directory / RESULTS, entries, allow_nan=False)
