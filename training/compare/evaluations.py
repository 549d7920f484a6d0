"""What a study measures: evaluations of its policies, costs of a step."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic.dataclasses import dataclass as checked_dataclass

from policies import build_for, compile_act
from policies.common.choices import Repair
from policies.common.scripted import Oracle
from training.analysis.agents import Agent
from training.analysis.evaluator import episode_of, origin, play, record, summarise
from training.analysis.step_cost import decisions_ms, measure_all
from training.collect import environments
from training.collect.environments import make_env
from training.collect.episode import Episode
from training.command.files import write_atomically
from training.compare.config import CurveConfig, PointConfig, StudyConfig, place_name, slug
from training.compare.episode_lines import play_on
from training.compare.jobs import DONE, MISSING, Job, Status
from training.compare.runs import TrainingJob, iterations_made
from training.io import checkpoint
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.run_log import Provenance, provenance
from training.io.state_files import Count, Finite, State, read_json

__all__ = [
    "CostJob",
    "Evaluation",
    "EvaluationJob",
    "Measured",
    "episodes_in",
    "evaluation_file",
    "run_is_gone",
    "settings_of",
    "unfinished",
    "write_json",
]

TIMED_CALLS = 200


@checked_dataclass(frozen=True, config=State)
class Evaluation:
    """What an evaluation was made with, as its file says."""

    env_settings: dict[str, Any]
    seeds: tuple[Count, ...]
    checkpoint_sha256: str | None = None
    repair: str | None = None


@checked_dataclass(frozen=True, config=State)
class Episodes:
    """The episodes of an evaluation, as its file has them."""

    records: tuple[dict[str, Finite], ...]
    provenance: dict[str, Any] = field(default_factory=dict)
    earlier: tuple[dict[str, Any], ...] = ()
    """How many episodes were there before more followed, and their provenance."""


@checked_dataclass(frozen=True, config=State)
class Cost:
    """What the page shows of a step's cost."""

    attention: Count
    total: Count
    latency_ms: Finite
    parameters: Count
    p50_ms: Finite | None = None
    """Median time of an episode's decisions, of CPU time on a CPU; None where it was not measured
    yet, as the following."""
    p99_ms: Finite | None = None
    """Of 100 decisions, 99 take no longer."""
    state: Count | None = None
    """Numbers that are carried to the next decision."""


@checked_dataclass(frozen=True, config=State)
class Measured:
    """The file of the costs."""

    measured: dict[str, Any]
    """By variant, all that they follow from."""
    costs: dict[str, Cost]
    """By variant."""
    provenance: Provenance


def write_json(path: Path, data: Any) -> None:
    """Write a file in one step, so that it is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def evaluation_file(out: Path, who: str, curve: str | None = None, x: float = 0.0) -> Path:
    """Where the evaluation of a policy lies, on the task itself or at a point of a curve."""
    where = "" if curve is None else f"--{slug(curve)}-{place_name(x)}"
    return out / "evaluations" / f"{who}{where}.json"


def unfinished(path: Path) -> Path:
    """Where the episodes of an evaluation lie until `path`, its result, is there."""
    return path.with_suffix(".jsonl")


def settings_of(env_id: str, robot: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """An evaluation's settings: the robot of a training run, and the task with these changes.

    UserError for a setting that the environment does not know.
    """
    settings = copy.deepcopy(environments.embodiment(env_id, robot))
    for change in changes:
        configuration.merge(settings, copy.deepcopy(change))
    return environments.resolved(env_id, settings)


@dataclass(frozen=True)
class EvaluationJob(Job):
    """Evaluates a policy on the task itself, or at the points of one curve."""

    study: StudyConfig
    out: Path
    who: str
    """A variant's file name with its seed, or a reference."""
    env_id: str
    robot: dict[str, Any] = field(repr=False)
    """The environment's settings in training, of which the robot's are taken over."""
    run: Path | None = None
    """The run whose last policy it is; None for a reference."""
    curve: CurveConfig | None = None

    @property
    def label(self) -> str:
        where = "" if self.curve is None else f" along {self.curve.name}"
        return f"evaluate {self.who}{where}"

    @property
    def requires(self) -> Path | None:
        return self.run

    @property
    def _seeds(self) -> range:
        first = self.study.evaluation_seed
        return range(first, first + (self.curve or self.study).episodes)

    @property
    def _repair(self) -> Repair | None:
        """Of depth pictures, in place of the policy's own; scripted policies see none."""
        return None if self.curve is None or self.run is None else self.curve.repair

    def points(self) -> dict[Path, PointConfig | None]:
        """Points of the curve by result file, but for those that change nothing, where the task
        itself is measured already; None of the task itself."""
        if self.curve is None:
            return {evaluation_file(self.out, self.who): None}
        return {
            evaluation_file(self.out, self.who, self.curve.name, point.x): point
            for point in filterfalse(self.curve.is_of_the_task, self.curve.points)
        }

    def settings(self, make: bool = False) -> dict[Path, dict[str, Any]]:
        """The environment's settings by result file; UserError for one that is not known, which
        with some environments only shows when they are made."""
        curve = None if self.curve is None else self.curve.name
        changes = {path: {} if p is None else p.set for path, p in self.points().items()}
        found = {}
        for path, change in changes.items():
            try:
                found[path] = settings_of(self.env_id, self.robot, self.study.env, change)
                if make and environments.settings_class(self.env_id) is None:
                    Agent(self.who, self.env_id, found[path]).make_env().close()
            except UserError as error:
                where = f"curve {curve}, setting {change}" if change else f"env {self.study.env}"
                raise UserError(f"{where}: {error}") from None
        return found

    def status(self) -> Status:
        """Stale: a result has other settings, scenes or another policy. Missing: it has too few
        episodes. Raises UserError for a setting that the environment does not know."""
        there = [] if self.run is None else checkpoint.in_run(self.run)
        done = True
        for path, settings in self.settings(make=True).items():
            if not path.is_file():
                done = False
                continue
            before = dataclasses.asdict(read_json(Evaluation, path))
            if self.run is not None and not iterations_made(self.run):
                return run_is_gone(path, self.run)
            done = done and len(before["seeds"]) >= len(self._seeds)
            seeds = self._seeds[: len(before["seeds"])]  # more can follow, or be left out
            before["seeds"] = before["seeds"][: len(seeds)]
            before["env_settings"] = environments.completed(self.env_id, before["env_settings"])
            now = {**before, "env_settings": settings, "seeds": seeds, "repair": self._repair}
            now["checkpoint_sha256"] = there[-1] if there else before["checkpoint_sha256"]
            for change in differences(fingerprint(before), fingerprint(now)):
                reason = (
                    f"{path} was measured with {change.describe('the study now has')}; "
                    "give another --out, or move that file away"
                )
                return Status("stale", reason, change)
        return DONE if done else MISSING

    def execute(self) -> None:
        """Play the missing episodes; each episode and each result is written at once. A result of
        fewer episodes than are wanted is extended."""
        wanted = len(self._seeds)
        missing = {p: s for p, s in self.settings().items() if episodes_in(p) < wanted}
        file = None if self.run is None else checkpoint.resolve(self.run)
        device = self.study.device if self.run is not None else "cpu"
        repair: dict[str, Any] = {} if self._repair is None else {"repair": self._repair}
        for path, settings in missing.items():
            agent = Agent(self.who, self.env_id, settings, file, device, self._repair, force=True)
            before = read_json(Episodes, path) if path.is_file() else None
            inputs = {"checkpoint_sha256": file, "env": settings, "device": device, **repair}
            episodes = play_on(
                unfinished(path),
                fingerprint(inputs),
                self._seeds,
                partial(play, agent, workers=self.study.workers or 1),
                () if before is None else _played(agent, before, path),
            )
            entry = summarise(agent, episodes) | origin(agent)
            if before is not None:
                first = {"episodes": len(before.records), "provenance": before.provenance}
                entry["earlier"] = [*before.earlier, first]
            entry["records"] = [record(e) | {"success": float(bool(e.success))} for e in episodes]
            write_json(path, entry)
            unfinished(path).unlink()


def episodes_in(path: Path) -> int:
    """How many episodes an evaluation's file holds; 0 without it."""
    return len(read_json(Evaluation, path).seeds) if path.is_file() else 0


def _played(agent: Agent, there: Episodes, path: Path) -> list[Episode]:
    """The episodes that the result at `path` holds."""
    try:
        return [episode_of(one, agent.task) for one in there.records]
    except KeyError as error:
        raise UserError(f"{path} is damaged: an episode has no {error}") from None


def run_is_gone(path: Path, run: Path) -> Status:
    """Of a file that was made from a run that does not exist any more."""
    return Status(
        "stale",
        f"{path} was made from the policy of {run}, which is not there any more; bring that "
        "run back, or move that file away too",
    )


@dataclass(frozen=True)
class CostJob(Job):
    """Measures FLOPs, times, size and memory of a step of every variant, timed in turn here.

    They follow from a variant's configuration: training changes the numbers in a policy, not what
    it computes. So they are measured before the first run, on policies as they are initialised.
    """

    study: StudyConfig
    out: Path
    runs: tuple[TrainingJob, ...] = field(repr=False)
    """The last stage of each variant, of any seed."""

    @property
    def label(self) -> str:
        return "measure the cost of a step of every variant"

    @property
    def exclusive(self) -> bool:
        return True

    @property
    def path(self) -> Path:
        """The result file."""
        return self.out / "costs.json"

    def _measured(self) -> dict[str, Any]:
        """By variant, all that the costs follow from."""
        measured = {}
        for run in self.runs:
            policy = _policy_facts(run.job.policy)
            env = settings_of(run.job.env_id, run.job.env, self.study.env)
            measured[run.variant.name] = {"policy": policy, "env": env, "device": self.study.device}
        return measured

    def status(self) -> Status:
        """Missing: a variant as it is now was not measured; then all are measured again."""
        if not self.path.is_file():
            return MISSING
        here, there = fingerprint(self._measured()), read_json(Measured, self.path).measured
        same = not differences({name: self._completed(there.get(name)) for name in here}, here)
        return DONE if same else MISSING

    def _completed(self, facts: Any) -> Any:
        """What a variant was measured with, completed by the defaults of settings added since."""
        if not isinstance(facts, dict):
            return facts
        policy: Any = facts.get("policy")
        with contextlib.suppress(UserError, AttributeError):
            policy = _policy_facts(checkpoint.policy_settings(policy, self.path))
        env = environments.completed(self.runs[0].job.env_id, facts.get("env"))
        return fingerprint({**facts, "env": env, "policy": policy})

    def execute(self) -> None:
        """Measure all variants, old ones too, so that latencies can be compared."""
        torch.set_num_threads(1)
        measured = self._measured()
        observed: dict[str, list[Any]] = {}  # by environment
        rollouts: dict[str, tuple[Any, list[Any]]] = {}
        for run in self.runs:
            env_id, settings = run.job.env_id, measured[run.variant.name]["env"]
            key = repr((env_id, settings))
            with make_env(env_id, settings) as env:
                policy = compile_act(build_for(run.job.policy, env))
                policy.to(self.study.device).requires_grad_(False)
                if key not in observed:
                    observed[key] = self._observed(env, policy)
            policy.reset()
            rollouts[run.variant.name] = policy, observed[key]
        device = self.study.device
        first = {name: (policy, seen[0]) for name, (policy, seen) in rollouts.items()}
        costs = measure_all(first, device, TIMED_CALLS)
        found = {}
        for name, times_ms in decisions_ms(rollouts, device, TIMED_CALLS).items():
            cost = costs[name]
            p50_ms, p99_ms = map(float, np.quantile(times_ms, (0.5, 0.99)))
            found[name] = dataclasses.asdict(cost) | {
                "attention": cost.attention, "total": cost.total,
                "p50_ms": p50_ms, "p99_ms": p99_ms,
            }  # fmt: skip
        facts = {"measured": measured, "costs": found, "timed_calls": TIMED_CALLS}
        write_json(self.path, facts | {"provenance": provenance({})})

    def _observed(self, env: Any, policy: Any) -> list[Any]:
        """What is observed in an episode, at most so often as is timed: of the expert, or of the
        policy where there is none."""
        actor = Oracle(env) if env.has_wrapper_attr("expert_action") else policy
        observation, _ = env.reset(seed=self.study.evaluation_seed)
        seen, ended = [copy.deepcopy(observation)], False
        actor.reset()
        with contextlib.suppress(Exception):  # its evaluation says why an environment breaks
            while not ended and len(seen) < TIMED_CALLS:
                observation, _, terminated, truncated, _ = env.step(actor.act(observation))
                ended = terminated or truncated
                seen.append(copy.deepcopy(observation))
        return seen


def _policy_facts(settings: Any) -> dict[str, Any]:
    """A policy's settings as plain data, but for its seeds, by which no cost differs."""
    return {k: v for k, v in configuration.dump(settings).items() if not k.endswith("_seed")}
