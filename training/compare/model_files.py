"""Files that a study makes of its policies: videos, policies alone, gaze statistics, costs."""

import contextlib
import copy
import dataclasses
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic.dataclasses import dataclass as checked_dataclass

import envs
from policies import PolicyConfig, build_for, compile_act
from policies.common.scripted import Oracle
from training.analysis.agents import find_agents
from training.analysis.gaze import axes_ahead, depth_edges, gaze, oracle_views
from training.analysis.step_cost import decisions_ms, measure_all
from training.collect import environments
from training.collect.environments import make_env
from training.command.files import write_json
from training.compare.config import StudyConfig
from training.compare.evaluations import run_is_gone, settings_of
from training.compare.jobs import DONE, MISSING, Job, Status
from training.compare.runs import TrainingJob, iterations_made
from training.io import checkpoint
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint, sha256_of
from training.io.run_log import Provenance, provenance
from training.io.state_files import Count, Finite, State, read_json
from training.video.rollout import roll

TIMED_CALLS = 200


@dataclass(frozen=True)
class ModelFileJob(Job):
    """Makes a file from the last policy of a run; a finished run never changes."""

    study: StudyConfig = field(repr=False)
    run: TrainingJob = field(repr=False)
    folder: ClassVar[str]
    """Directory of the study that such files are in."""
    suffix: ClassVar[str]
    """How their names end."""
    words: ClassVar[str]
    """Label of the job, with {} for the run."""

    @classmethod
    def path_of(cls, run: Path) -> Path:
        """The file of a run directory."""
        return run.parents[1] / cls.folder / f"{run.name}{cls.suffix}"

    @property
    def path(self) -> Path:
        """The file."""
        return self.path_of(self.run.directory)

    @property
    def label(self) -> str:
        return self.words.format(self.run.directory.name)

    @property
    def requires(self) -> Path:
        return self.run.directory

    def status(self) -> Status:
        """Stale: the run that the file was made from is gone."""
        if not self.path.is_file():
            return MISSING
        directory = self.run.directory
        return DONE if iterations_made(directory) else run_is_gone(self.path, directory)

    def execute(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.make()

    def make(self) -> None:
        """Write the file into its directory."""
        raise NotImplementedError


class VideoJob(ModelFileJob):
    """A video of a variant's policy in the first evaluation scene."""

    folder, suffix, words = "videos", ".mp4", "record a video of {}"

    def make(self) -> None:
        """Record it. Raises UserError when the environment cannot be rendered after all."""
        settings = [f"{key}={json.dumps(value)}" for key, value in self.study.env.items()]
        files, env_id = [str(self.run.directory)], self.run.job.env_id
        (agent,) = find_agents(files, [], env_id, settings, self.study.device)
        with contextlib.redirect_stdout(io.StringIO()):  # a study prints its jobs alone
            roll(agent, [self.study.evaluation_seed], self.path)


class PolicyJob(ModelFileJob):
    """A variant's policy as a checkpoint without the search or the optimiser: a smaller file."""

    folder, suffix, words = "policies", ".safetensors", "save the policy of {}"

    def make(self) -> None:
        whole = checkpoint.load(checkpoint.resolve(self.run.directory))
        checkpoint.save(self.path, whole.policy, {}, whole.config, {})


class GazeJob(ModelFileJob):
    """The tokens and pixels that the policy of a run keeps of the oracle's observations."""

    folder, suffix, words = "gaze", ".json", "measure the gaze of {}"
    episodes = 4
    """Terrains that the oracle crosses, the first of the evaluation."""

    def make(self) -> None:
        env_id, first = self.run.job.env_id, self.study.evaluation_seed
        settings = settings_of(env_id, self.run.job.env, self.study.env)
        views = oracle_views(settings, range(first, first + self.episodes), env_id)
        policy, _ = checkpoint.load_policy(self.run.directory)
        past_m, ahead = depth_edges(env_id).past_m, axes_ahead(settings, env_id)
        found = dataclasses.asdict(gaze(policy, views, past_m, ahead))
        sha256 = sha256_of(checkpoint.resolve(self.run.directory))
        facts = {**found, "checkpoint_sha256": sha256, "views": len(views)}
        write_json(self.path, facts, allow_nan=False)


def has_gaze(run: TrainingJob) -> bool:
    """Whether a run's policy chooses among tokens of depth images."""
    policy = run.job.policy
    task = envs.find_task(run.job.env_id)
    if not isinstance(policy, PolicyConfig) or task is None or task.edges is None:
        return False
    return policy.selection != "all" and policy.variant != "trans"


@checked_dataclass(frozen=True, config=State)
class Cost:
    """The cost of a step, as the page shows it."""

    attention: Count
    total: Count
    latency_ms: Finite
    parameters: Count
    p50_ms: Finite | None = None
    """Median time of the decisions of an episode (CPU time on a CPU); None if not measured yet, as
    in the following fields."""
    p99_ms: Finite | None = None
    """The time that 99 of 100 decisions do not exceed."""
    state: Count | None = None
    """Size of the recurrent state."""


@checked_dataclass(frozen=True, config=State)
class Measured:
    """The file of the costs."""

    measured: dict[str, Any]
    """All inputs of the costs, by variant."""
    costs: dict[str, Cost]
    """Costs by variant."""
    provenance: Provenance


@dataclass(frozen=True)
class CostJob(Job):
    """Measures FLOPs, times, size and memory of a step of every variant, timed in turn.

    They follow from a variant's configuration: training changes the numbers in a policy, not what
    it computes. So they are measured before the first run, on freshly initialised policies."""

    study: StudyConfig
    out: Path
    runs: tuple[TrainingJob, ...] = field(repr=False)
    """The last stage of each variant, of any seed."""
    label = "measure the cost of a step of every variant"
    exclusive = True

    @property
    def path(self) -> Path:
        """The result file."""
        return self.out / "costs.json"

    def _measured(self) -> dict[str, Any]:
        """Return all inputs of the costs, by variant."""
        measured = {}
        for run in self.runs:
            policy = _policy_facts(run.job.policy)
            env = settings_of(run.job.env_id, run.job.env, self.study.env)
            measured[run.variant.name] = {"policy": policy, "env": env, "device": self.study.device}
        return measured

    def status(self) -> Status:
        """Missing: the present configuration of a variant was not measured; then all are measured
        again."""
        if not self.path.is_file():
            return MISSING
        here, there = fingerprint(self._measured()), read_json(Measured, self.path).measured
        same = not differences({name: self._completed(there.get(name)) for name in here}, here)
        return DONE if same else MISSING

    def _completed(self, facts: Any) -> Any:
        """The inputs in a file, completed by the defaults of settings added since."""
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
        measured, device = self._measured(), self.study.device
        observed: dict[str, list[Any]] = {}  # by environment
        rollouts: dict[str, tuple[Any, list[Any]]] = {}
        for run in self.runs:
            env_id, settings = run.job.env_id, measured[run.variant.name]["env"]
            key = repr((env_id, settings))
            with make_env(env_id, settings) as env:
                policy = compile_act(build_for(run.job.policy, env))
                policy.to(device).requires_grad_(False)
                if key not in observed:
                    observed[key] = self._observed(env, policy)
            policy.reset()
            rollouts[run.variant.name] = policy, observed[key]
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
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.path, facts | {"provenance": provenance({})}, allow_nan=False)

    def _observed(self, env: Any, policy: Any) -> list[Any]:
        """The observations of an episode, at most as many as are timed: of the expert, or of the
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
    """A policy's settings as plain data, except its seeds, which do not affect costs."""
    return {k: v for k, v in configuration.dump(settings).items() if not k.endswith("_seed")}
