"""The loop of all training: learn, collect episodes, write a row, write a checkpoint.

`run_loop` runs any `BaseAlgorithm`. One that trains a policy in an environment is a configuration
(`training.algorithms.trainer.JobConfig`) and a subclass of `Algorithm` with three methods: `tasks`
(the episodes to collect), `update` (learn from their outcomes and return the row of metrics.csv)
and `state` (what a checkpoint holds beside the policy). `train` runs it in a run directory, from
the beginning or from the newest checkpoint. A model of an experiment has no environment:
`experiments.fitting.Fit`.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor

import policies
from policies.common.geometry import camera_rays
from policies.common.observation import is_table, leaves, parts_of
from training.algorithms.devices import current_group
from training.algorithms.feature_maps import announce, begin_from
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.algorithms.registry import trainer_of
from training.algorithms.resuming import iterations_done, resume_newest, set_aside_later
from training.algorithms.trainer import JobConfig
from training.analysis.agents import check_device
from training.collect import environments, pool
from training.collect.checked import EnvironmentFault
from training.collect.environments import make_env
from training.collect.pool import InProcessPool, Pool, Worker, WorkerDiedError
from training.collect.seeds import derived_seeds
from training.command.files import lock
from training.io import checkpoint, run_log, trackers
from training.io import config as configuration
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.state_files import Count, State, check
from training.io.trackers import Tracking

C = TypeVar("C", bound=JobConfig)
K = TypeVar("K")
R = TypeVar("R")


@dataclass(config=ConfigDict(extra="forbid"))
class Progress:
    """How far a run is; an algorithm that counts more has a subclass."""

    iteration: Count = 0
    fitted: bool = False
    """Whether the policy's feature maps are fitted to its own queries and keys."""


@dataclass(frozen=True, kw_only=True, config=State)
class Saved:
    """The plain data of a checkpoint beside its progress; an algorithm that saves more has a
    subclass."""

    optimiser_tensors: Count | None = None
    """How many there are; null in checkpoints from before they were counted."""


class BaseAlgorithm:
    """A training that `run_loop` can run; nothing here requires an environment."""

    progress: Any
    """How far it is: a `Progress`."""

    @property
    def finished(self) -> bool:
        """Whether no iteration is left."""
        raise NotImplementedError

    def describe(self) -> str:
        """Describe the training in a few words, for the first line of output; empty: no line."""
        return ""

    def choices(self) -> Sequence[str]:
        """Lines printed after that: what settings left to the program, and why."""
        return ()

    def setup(self, run: Path) -> None:
        """Called once, in every process of a group, when training in `run` starts."""

    def begin(self, run: Path) -> None:
        """Called after `setup` in the process that writes."""

    def learn(self) -> None:
        """Learn before this iteration's episodes are collected, in every process of a group."""

    def tasks(self, outcomes: Sequence[Any]) -> Sequence[Any]:
        """The next episodes to collect in this iteration, after these outcomes; none when they are
        enough."""
        return ()

    def collect(self, tasks: Sequence[Any]) -> list[Any]:
        """The outcomes of tasks."""
        raise NotImplementedError

    def update(self, outcomes: list[Any]) -> dict[str, float]:
        """Learn from an iteration's outcomes; returns the row without `iteration` and `wall_s`."""
        raise NotImplementedError

    def summary(self, row: dict[str, float], seconds: float) -> str:
        """Return the progress bar's text for a row that took `seconds`."""
        return ""

    def open_log(self, run: Path, iteration: int) -> Any:
        """The log of the iterations after `iteration`, to be closed: a `RunLog`, or an object with
        its `last`, `row` and `close`."""
        raise NotImplementedError

    def save(self, run: Path) -> None:
        """Write the state that training resumes from."""
        raise NotImplementedError


class Algorithm(BaseAlgorithm, Generic[C]):
    """A training run: its configuration, environment (open), policy and progress.

    The policy is a new one, that of `init_from`, or that of the checkpoint `start`.

    Raises:
        UserError: the environment cannot be made, the policy does not fit it, or the checkpoint is
            not one of this algorithm.
    """

    Progress: ClassVar[type[Any]] = Progress
    """Class of `progress`."""
    Saved: ClassVar[type[Any]] = Saved
    """Type of the plain data of `state`: a frozen pydantic dataclass."""
    saved_optimiser: torch.optim.Optimizer | None = None
    """Set by `prepare`: the optimiser whose state checkpoints hold beside what `state` returns."""
    optimiser_prefix: ClassVar[str] = ""
    """Prefix of the names of its tensors."""
    opens_pool: ClassVar[bool] = True
    """Whether workers start before the first iteration; otherwise with the first tasks."""

    def __init__(self, config: C, start: Checkpoint | None = None) -> None:
        self.config, self.start = config, start
        device = getattr(config, "device", None)
        if device is not None and current_group().is_first:  # the others do not touch its GPU
            check_device(device)
        self.env, self._env_passed_on = make_env(config.env_id, config.env), False
        self._pool: Pool[Any, Any] | None = None
        self._newest: Path | None = None if start is None else start.path
        self.progress: Any = self.Progress()
        try:
            init_from = getattr(config, "init_from", None)
            self._before = None if init_from is None or start else _checkpoint(init_from)
            self.played = _with_former_layout(config, self.env, start or self._before)
            self.policy: Any = _build(config.env_id, self.played.policy, self.env)
            self._load()
            if start is None and current_group().is_first:
                _note_parts(self.env, getattr(self.played.policy, "layout", {}))
            self.prepare()
            if start is not None:
                self._resume(start)
        except BaseException:
            self.close()
            raise

    # --- what an algorithm defines ---

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        """Columns of metrics.csv: `iteration`, those that `update` returns, `wall_s`."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Build what training needs beside the policy; UserError if it cannot be trained."""

    def restore(self, start: Checkpoint, saved: Any) -> None:
        """Set everything but policy, progress and optimiser to what `state` saved; UserError if the
        checkpoint is of another algorithm."""

    def make_worker(self) -> Callable[[gymnasium.Env | None], Worker[Any, Any]]:
        """Function that builds a worker from an open environment, or opens one itself when it is
        given None; it is pickled for other processes."""
        raise NotImplementedError

    def describe(self) -> str:
        return f"{sum(p.numel() for p in self.policy.parameters())} parameters"

    def choices(self) -> Sequence[str]:
        """The policy's parts, then workers and device."""
        config: Any = self.config
        parts: list[str] = getattr(self.policy, "described", list)()
        device = getattr(config, "device", "cpu")
        if device == "cpu" and hasattr(config, "device") and torch.cuda.is_available():
            device += " (this machine has a GPU: device=cuda)"
        return (
            ": ".join(filter(None, (f"policy {config.policy.name}", ", ".join(parts)))),
            f"{self.workers} worker{'' if self.workers == 1 else 's'} on "
            f"{len(os.sched_getaffinity(0))} cores, device {device}",
        )

    def first(self) -> None:
        """Collect what a new run needs before its first checkpoint."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain data that a checkpoint holds beside policy, progress and optimiser."""
        return {}, {}

    # --- what the runner does with it ---

    @property
    def finished(self) -> bool:
        return self.progress.iteration >= self.config.iterations

    def begin(self, run: Path) -> None:
        """Print when feature maps are fitted, write a new run's first checkpoint, start workers."""
        config: Any = self.config
        if hasattr(config, "fit_after"):
            updates = config.iterations * getattr(config, "updates", 1)
            announce(self.policy, config.fit_after, self.progress.fitted, updates)
        if self.start is None:
            self.first()
            self.save(run)
        if self.opens_pool:
            self.collect([])

    def _load(self) -> None:
        before = self._before
        if self.start is not None:
            checkpoint.load_into(self.policy, self.start)
        elif before is not None:
            renewed = begin_from(self.policy, before, self.played.policy)
            self.progress.fitted = before.has_fitted_maps and not renewed
            if renewed and current_group().is_first:
                print(renewed, flush=True)

    def _resume(self, start: Checkpoint) -> None:
        state, path = start.state, start.path
        try:
            saved = check(self.Saved, state, path)
            self.progress = check(self.Progress, state.get("progress"), path, "progress.")
        except UserError as error:
            raise UserError(f"{error}; it may be of another trainer") from None
        self.restore(start, saved)
        if self.saved_optimiser is not None:
            count = saved.optimiser_tensors
            set_optimiser(self.saved_optimiser, start, count, self.optimiser_prefix)

    def seeds(self, group: int, count: int) -> list[int]:
        """Episode seeds of this iteration, by which group of episodes they are for."""
        return derived_seeds(self.config.seed, self.progress.iteration, group, count)

    def policy_arrays(self) -> dict[str, NDArray[Any]]:
        """The policy's `state_dict` as arrays, which tasks send to workers."""
        return {name: t.numpy(force=True) for name, t in self.policy.state_dict().items()}

    def save(self, run: Path) -> None:
        """Write the iteration's checkpoint; drop old ones."""
        tensors, state = self.state()
        state = {"progress": dataclasses.asdict(self.progress), **state}
        if self.saved_optimiser is not None:
            found, prefix = optimiser_tensors(self.saved_optimiser), self.optimiser_prefix
            tensors = tensors | {prefix + name: tensor for name, tensor in found.items()}
            state["optimiser_tensors"] = len(found)
        plain = configuration.dump(self.config)
        self._check_finite()
        checkpoint.save_in_run(run, self.progress.iteration, self.policy, tensors, plain, state)
        self._newest = checkpoint.in_run(run)[-1]

    @property
    def newest(self) -> str:
        """The newest checkpoint, as the end of a sentence."""
        if self._newest is None:
            return "no checkpoint was written"
        return f"the newest checkpoint, {self._newest}, is intact"

    def _check_finite(self) -> None:
        """UserError, before anything is written, if the policy is not finite."""
        numbers = dict(self.policy.named_parameters())
        numbers |= {k: v for k, v in self.policy.state_dict().items() if "normaliser" in k}
        for name, values in numbers.items():
            if not bool(values.isfinite().all()):
                raise UserError(
                    f"training stopped: {name} of the policy has numbers that are not finite after "
                    f"iteration {self.progress.iteration}; {self.newest}"
                )

    @property
    def settings(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Environment id, its settings and the policy's, as plain data: what a `PolicyWorker`
        takes."""
        plain = configuration.dump(self.played)
        return plain["env_id"], plain["env"], plain["policy"]

    @property
    def workers(self) -> int:
        """How many workers collect episodes."""
        return self.config.workers

    def open_pool(self, make: Callable[[gymnasium.Env | None], Worker[K, R]]) -> Pool[K, R]:
        """A pool that runs the run's episodes, to be closed; see `make_worker`."""
        workers, address = self.workers, getattr(self.config, "ray_address", None)
        if workers == 1 and address is None:
            self._env_passed_on = True  # the worker closes it
            return InProcessPool(partial(make, self.env))
        self._close_env()
        print(f"starting {workers} workers on {address or 'this machine'} ...", flush=True)
        return pool.open_pool(partial(make, None), workers, address)

    def open_log(self, run: Path, iteration: int) -> run_log.RunLog:
        """The log of a run from an iteration, with the configured tracker; to be closed."""
        config = self.config
        columns = trainer_of(config).columns(config.env_id)
        tracking = Tracking(config.tracker, run, configuration.dump(config))
        return run_log.RunLog(
            run, columns, iteration=iteration, total=config.iterations, tracking=tracking
        )

    def collect(self, tasks: Sequence[Any]) -> list[Any]:
        """The outcomes of tasks, which run on the run's workers with one thread in each process.

        UserError where an episode gives numbers that are not finite, or workers keep dying.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if self._pool is None:
                self._pool = self.open_pool(self.make_worker())
            return self._pool.run(tasks)
        except (FloatingPointError, EnvironmentFault, WorkerDiedError) as error:
            raise UserError(f"training stopped: {error}; {self.newest}") from None
        finally:
            torch.set_num_threads(threads)

    def _close_env(self) -> None:
        if not self._env_passed_on:
            self._env_passed_on = True
            self.env.close()

    def close(self) -> None:
        """Stop the workers and release the environment, and whatever else is open."""
        if self._pool is not None:
            self._pool.close()
        self._close_env()


def run_loop(algorithm: BaseAlgorithm, run: Path) -> None:
    """Run all remaining iterations, in an existing directory."""
    progress, group = algorithm.progress, current_group()
    if group.is_first and (what := algorithm.describe()):
        print(f"{what}, in {run}", *algorithm.choices(), sep="\n", flush=True)
    if algorithm.finished:
        return
    algorithm.setup(run)
    if not group.is_first:
        while not algorithm.finished:
            progress.iteration += 1
            algorithm.learn()
            group.share(None)  # wait until the first process has evaluated and saved
        return
    began = time.perf_counter()
    algorithm.begin(run)
    with closing(algorithm.open_log(run, progress.iteration)) as log:
        earlier_s = float(log.last.get("wall_s", 0.0))
        while not algorithm.finished:
            lap = time.perf_counter()
            progress.iteration += 1
            algorithm.learn()
            outcomes: list[Any] = []
            while tasks := algorithm.tasks(outcomes):
                outcomes += algorithm.collect(tasks)
            row = {"iteration": progress.iteration, **algorithm.update(outcomes)}
            now = time.perf_counter()
            row["wall_s"] = round(earlier_s + now - began, 3)
            log.row(row, algorithm.summary(row, now - lap))
            algorithm.save(run)
            group.share(None)


def build_policy(env_id: str, env: dict[str, Any], config: policies.AnyPolicyConfig) -> Any:
    """The initial policy for an environment; UserError when it does not fit, or the environment
    cannot be made."""
    with make_env(env_id, env) as opened:
        return _build(env_id, config, opened)


def _build(env_id: str, config: policies.AnyPolicyConfig, env: gymnasium.Env) -> Any:
    with checkpoint.fitting(f"cannot build the policy for {env_id}"):
        return policies.build_for(config, env, trusted=False)


def _checkpoint(init_from: str) -> Checkpoint:
    return checkpoint.load(checkpoint.resolve(init_from))


def _with_former_layout(config: Any, env: gymnasium.Env, start: Checkpoint | None) -> Any:
    """The configuration with the layout of the checkpoint that training begins from."""
    if start is None:
        return config
    with checkpoint.fitting(f"cannot build the policy for {config.env_id}"):
        policy = checkpoint.with_former_layout(config.policy, env, start)
    return config if policy is config.policy else dataclasses.replace(config, policy=policy)


def _note_parts(env: gymnasium.Env, layout: Mapping[str, str]) -> None:
    """Print a note of text that is left out, and each table that is not read as an image."""
    known = {*layout, *camera_rays(env)}
    read = dict(parts_of(env.observation_space))
    if text := [key for key, _ in leaves(env.observation_space) if key not in read]:
        print(f"note: {', '.join(text)} is text, which policies leave out", flush=True)
    for key, part in read.items():
        if is_table(key, part) and key not in known:
            print(
                f"note: {key} has {part.shape[0]} x {part.shape[1]} numbers, which are read as a "
                f"vector; to read them as an image: --set 'policy.layout={{{key}: HW}}'",
                flush=True,
            )


def train(config: JobConfig, run: str | Path) -> None:
    """Train in the directory `run`: from the beginning, or from the newest checkpoint of the run
    that it holds.

    What the configuration names as "module:Class" is imported. UserError when the run cannot start
    or resume, or stops; finished iterations are kept, also after an interrupt."""
    from policies.common.plugins import admit

    run, start = Path(run), None
    environments.find_task(config.env_id)
    admit(configuration.dump(config.policy))
    trackers.admit(config.tracker)
    resumed = (run / run_log.CONFIG).is_file()
    if resumed:
        config, start = resume_newest(config, run)
    with closing(begin(config, run, start, resumed)) as job:
        in_directory(job, run, resumed)


def begin(config: JobConfig, run: Path, start: Checkpoint | None, resumed: bool) -> Any:
    """The algorithm of a configuration and, unless the run is resumed, its run directory."""
    trackers.maker(config.tracker)  # refuse before anything is written
    job = trainer_of(config).prepare(config, start)
    try:
        if not resumed:
            run_log.create(run, configuration.dump(config))
    except BaseException:
        job.close()
        raise
    return job


def in_directory(job: Any, run: Path, resumed: bool) -> None:
    """Train in a run directory while no other process can."""
    with lock(run):
        if resumed:
            run_log.record_resume(run, iterations_done(job.start), configuration.dump(job.config))
        if job.start is not None:
            set_aside_later(job.start)
        trainer_of(job.config).train(job, run)
