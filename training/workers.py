"""Episodes for a trainer: in this process, or on Ray actors of this machine or a cluster.

An episode's outcome depends on its `Task` alone, and outcomes come back in the order of the tasks,
so that a training run is the same bit for bit whatever runs the episodes.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

import policies
from training import config as configuration
from training.checkpoint import make_env
from training.config import UserError
from training.episode import Episode, run_episode
from training.map_fitting import evenly
from training.seeds import EVALUATION_SEEDS_FROM

__all__ = [
    "Outcome",
    "Pool",
    "Setup",
    "Task",
    "explained",
    "get_parameters",
    "open_pool",
    "set_parameters",
]

_RETRIES = 3
_PACKAGES = ("attention", "policies", "envs", "training", "configs", "sim_assets")


@dataclass(frozen=True)
class Setup:
    """What a worker needs to build its environment and policy: plain data and arrays."""

    env_id: str
    env: dict[str, Any]
    policy: dict[str, Any]
    state: dict[str, Tensor]
    """The policy's `state_dict`: random projections and everything else that is not searched."""


@dataclass(frozen=True)
class Task:
    """One episode of one candidate."""

    parameters: Tensor
    """Searched parameters of the policy, (parameters,) float64."""
    statistics: policies.RunningStatistics
    """What observations are normalised by, frozen during an iteration."""
    seed: int
    options: dict[str, Any]
    maps: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """What the policy's feature maps were fitted to since the pool was opened; may be empty."""
    kept: int = 0
    """How many of the depth images seen the outcome is to hold."""


@dataclass(frozen=True)
class Outcome:
    """What an episode came to, and the proprioception seen in it."""

    episode: Episode
    statistics: policies.RunningStatistics
    depth_m: list[np.ndarray] = dataclasses.field(default_factory=list)
    """At most `Task.kept` depth images (cameras, height, width) of the episode, spread evenly over
    it, metres."""


class Pool(Protocol):
    """Something that runs episodes."""

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        """Outcomes in the order of the tasks; UserError when a policy or reward is not finite."""

    def close(self) -> None:
        """Release processes and environments."""


def get_parameters(policy: nn.Module) -> Tensor:
    """The searched parameters of a policy as one vector, float64."""
    searched = [p.detach().flatten().double() for p in policy.parameters() if p.requires_grad]
    return torch.cat(searched) if searched else torch.zeros(0, dtype=torch.float64)


def set_parameters(policy: nn.Module, vector: Tensor) -> None:
    """Set the searched parameters of a policy from one vector."""
    searched = [p for p in policy.parameters() if p.requires_grad]
    pieces = vector.split([p.numel() for p in searched])
    with torch.no_grad():
        for parameter, piece in zip(searched, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))


class EpisodeWorker:
    """One environment and one policy; runs one task at a time."""

    def __init__(self, setup: Setup) -> None:
        torch.set_num_threads(1)
        self._env = make_env(setup.env_id, setup.env)
        settings = configuration.validate(policies.PolicyConfig, setup.policy, "policy")
        self._policy = policies.build(settings, self._env.observation_space, self._env.action_space)
        self._policy.load_state_dict(setup.state)

    def run(self, task: Task) -> Outcome:
        """Run a task's episode. Raises FloatingPointError for NaN from policy or reward."""
        assert task.seed < EVALUATION_SEEDS_FROM, f"seed {task.seed} is for evaluation"
        set_parameters(self._policy, task.parameters)
        if task.maps:
            self._policy.load_state_dict(task.maps, strict=False)
        self._policy.normaliser.statistics = task.statistics
        seen: list[np.ndarray] = []
        depth_m: list[np.ndarray] = []

        def keep(env: Any, observation: Any, action: Any, reward: float, policy: Any) -> None:
            seen.append(observation["proprio"])
            if task.kept:
                depth_m.append(observation["depth"])

        with torch.no_grad():
            episode = run_episode(
                self._env, self._policy, task.seed, options=task.options, on_step=keep
            )
        statistics = policies.RunningStatistics.empty(len(seen[0])).update(np.stack(seen))
        kept = [depth_m[i] for i in evenly(len(depth_m), task.kept)]
        return Outcome(dataclasses.replace(episode, info={}), statistics, kept)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


@contextmanager
def explained() -> Iterator[None]:
    """Turn an episode's numbers that are not finite into a UserError."""
    try:
        yield
    except FloatingPointError as error:
        raise UserError(f"training stopped: {error}; the last checkpoint is intact") from None


class InProcessPool:
    """Runs the episodes here, one after the other."""

    def __init__(self, setup: Setup) -> None:
        self._worker = EpisodeWorker(setup)

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        with explained():
            return [self._worker.run(task) for task in tasks]

    def close(self) -> None:
        self._worker.close()


class _Actor:
    """An EpisodeWorker on Ray, built at the first call, and so again after a restart."""

    def __init__(self) -> None:
        self._worker: EpisodeWorker | None = None

    def prepare(self, setup: list[Any]) -> None:
        """Build the worker of a setup, given as a list of its reference in Ray's store."""
        import ray

        if self._worker is None:
            self._worker = EpisodeWorker(ray.get(setup[0]))

    def run(self, setup: list[Any], task: Task) -> Outcome:
        """Run a task's episode."""
        self.prepare(setup)
        assert self._worker is not None
        return self._worker.run(task)


class RayPool:
    """Runs each episode on the next free Ray actor.

    A killed actor is started anew by Ray, and its episode is run again.
    """

    def __init__(self, setup: Setup, workers: int, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray = ray
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            _start_ray(workers, address)
        actor_class: Any = ray.remote(num_cpus=1, max_restarts=1000, max_task_retries=_RETRIES)(
            _Actor
        )
        self._setup = [ray.put(setup)]
        self._actors = [actor_class.remote() for _ in range(workers)]
        for actor in self._actors:
            actor.prepare.remote(self._setup)

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(tasks)
        waiting = iter(range(len(tasks)))
        running: dict[Any, tuple[Any, int]] = {}

        def start(actor: Any) -> None:
            index = next(waiting, None)
            if index is not None:
                running[actor.run.remote(self._setup, tasks[index])] = actor, index

        for actor in self._actors:
            start(actor)
        while running:
            (done,), _ = self._ray.wait(list(running))
            actor, index = running.pop(done)
            outcomes[index] = self._get(done, tasks[index])
            start(actor)
        return [outcome for outcome in outcomes if outcome is not None]

    def _get(self, reference: Any, task: Task) -> Outcome:
        try:
            with explained():
                try:
                    outcome: Outcome = self._ray.get(reference)
                except self._ray.exceptions.RayTaskError as error:
                    raise error.cause from None
        except self._ray.exceptions.RayActorError as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"a Ray worker died {_RETRIES + 1} times over the episode with seed {task.seed}, "
                f"so training stopped (the last checkpoint is intact): {reason}"
            ) from None
        return outcome

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._owns_ray:
            self._ray.shutdown()


def _start_ray(workers: int, address: str | None) -> None:
    import ray

    root = Path(__file__).resolve().parents[1]
    runtime: dict[str, Any] = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    where: dict[str, Any]
    if address is None:
        where = {
            "address": "local",  # whatever RAY_ADDRESS says
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": 100 * 2**20,
        }
        runtime["env_vars"]["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, sys.path)])
    else:
        _check_reachable(address)
        where = {"address": address}
        runtime["py_modules"] = [str(root / name) for name in _PACKAGES if (root / name).is_dir()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray announces its own future changes
            ray.init(**where, runtime_env=runtime, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"cannot use Ray at ray_address = {address!r} (it must run, and share its token with "
            f"this process where it has one: RAY_AUTH_TOKEN): {' '.join(str(error).split())}"
        ) from None
    cores = int(ray.cluster_resources().get("CPU", 0))
    if cores < workers:
        print(f"Ray has {cores} cores for {workers} workers: the others wait for more", flush=True)


def _check_reachable(address: str) -> None:
    """UserError at once where Ray itself would try for minutes."""
    host, colon, port = address.partition("://")[2 if "://" in address else 0].rpartition(":")
    if not colon:  # "auto" and the like
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise UserError(f"nothing answers at ray_address = {address!r}: {error}") from None


def open_pool(setup: Setup, workers: int, ray_address: str | None) -> Pool:
    """A pool for `workers` simultaneous episodes; one worker without Ray stays in this process."""
    if workers == 1 and ray_address is None:
        return InProcessPool(setup)
    print(f"starting {workers} Ray workers on {ray_address or 'this machine'} ...", flush=True)
    return RayPool(setup, workers, ray_address)
