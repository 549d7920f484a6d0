"""What every trainer does around its training: what a run begins with, its directory, its end."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Generic, TypeVar

import gymnasium
import torch

import policies
from training.algorithms.devices import Group, current_group, open_group
from training.algorithms.job_config import JobConfig
from training.algorithms.registry import load_any_config, trainer_of
from training.algorithms.resuming import go_on, iterations_done, resume, set_aside_later
from training.algorithms.trainer import Trainer
from training.algorithms.uptraining import begin_from
from training.analysis.agents import check_device
from training.collect import environments, pool
from training.collect.crew import InProcessPool, Pool, Worker
from training.collect.environments import make_env
from training.command.command_lines import command_line
from training.command.files import lock
from training.command.signals import interrupted_status
from training.io import checkpoint, run_log, trackers
from training.io import config as configuration
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.state_files import check
from training.io.trackers import Tracking

__all__ = [
    "Job",
    "build_policy",
    "own_names",
    "print_next",
    "run_command",
    "state_of",
    "train",
]

C = TypeVar("C", bound=JobConfig)
K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")


class Job(Generic[C]):
    """What a run begins with: its environment, open, and its policy, as it is in the beginning, as
    `init_from` gives it or as the checkpoint `start` that the run goes on from.

    UserError when the environment cannot be made or the policy does not fit it.
    """

    def __init__(self, config: C, start: Checkpoint | None = None) -> None:
        self.config, self.start = config, start
        device = getattr(config, "device", None)
        if device is not None and current_group().is_first:  # others leave its GPU alone
            check_device(device)
        self.env, self._given = make_env(config.env_id, config.env), False
        self.fitted = False
        """Whether another run has fitted its feature maps."""
        try:
            self.policy: Any = _built(config.env_id, config.policy, self.env)
            self._load()
            self.prepare()
        except BaseException:
            self.close()
            raise

    def prepare(self) -> None:
        """What else a trainer begins with; UserError where it cannot begin."""

    def _load(self) -> None:
        init_from = getattr(self.config, "init_from", None)
        if self.start is not None:
            checkpoint.load_into(self.policy, self.start)
        elif init_from is not None:
            before = checkpoint.load(checkpoint.resolve(init_from))
            anew = begin_from(self.policy, before, self.config.policy)
            self.fitted = before.has_fitted_maps and not anew
            if anew and current_group().is_first:
                print(anew, flush=True)

    @property
    def settings(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """What a worker is made for, as `PolicyWorker` takes it: plain data."""
        plain = configuration.dump(self.config)
        return plain["env_id"], plain["env"], plain["policy"]

    @contextmanager
    def opened(
        self, make: Callable[[gymnasium.Env | None], Worker[K, R]], run: Path, iteration: int
    ) -> Iterator[tuple[Pool[K, R], run_log.RunLog]]:
        """Workers that `make` gives, see `open_pool`, and the log of a run from an iteration."""
        with closing(self.open_pool(make)) as pool, closing(self.open_log(run, iteration)) as log:
            yield pool, log

    def open_log(self, run: Path, iteration: int) -> run_log.RunLog:
        """The log of a run from an iteration, with the tracker that is configured; to be closed."""
        config = self.config
        columns = trainer_of(config).module.columns(config.env_id)
        tracking = Tracking(config.tracker, run, configuration.dump(config))
        return run_log.RunLog(
            run, columns, iteration=iteration, total=config.iterations, tracking=tracking
        )

    def open_pool(
        self, make: Callable[[gymnasium.Env | None], Worker[K, R]], workers: int | None = None
    ) -> Pool[K, R]:
        """What runs the episodes of the run, to be closed.

        Args:
            make: gives a worker, one in this process for the environment that is open here, others
                for one that they make themselves; for those it is pickled.
            workers: how many; None: as configured.
        """
        config = self.config
        workers = config.workers if workers is None else workers
        address = getattr(config, "ray_address", None)
        if workers == 1 and address is None:
            self._given = True  # the worker closes it
            return InProcessPool(partial(make, self.env))
        self.close()
        print(f"starting {workers} workers on {address or 'this machine'} ...", flush=True)
        return pool.open_pool(partial(make, None), workers, address)

    def close(self) -> None:
        """Close the environment, unless a worker has it."""
        if not self._given:
            self._given = True
            self.env.close()


def build_policy(env_id: str, env: dict[str, Any], config: policies.AnyPolicyConfig) -> Any:
    """The initial policy.

    UserError when the environment cannot be made or the policy does not fit it.
    """
    with make_env(env_id, env) as opened:
        return _built(env_id, config, opened)


def _built(env_id: str, config: policies.AnyPolicyConfig, env: gymnasium.Env) -> Any:
    with checkpoint.fitting(f"cannot build the policy for {env_id}"):
        return policies.build_for(config, env, typed=False)


def state_of(start: Checkpoint, cls: type[T]) -> T:
    """What a trainer saved beside tensors. UserError when the checkpoint does not hold it."""
    try:
        return check(cls, start.state, start.path)
    except UserError as error:
        raise UserError(f"{error}; it may be another trainer's") from None


def train(config: JobConfig, run: str | Path) -> None:
    """Train in the directory `run`: from the beginning, or from the newest checkpoint of the run
    that it holds.

    What the configuration names as "module:Class" is imported. UserError when it cannot begin, or
    go on, or stops; what is done is kept, after an interrupt too.
    """
    run, start = Path(run), None
    admit_parts(config)
    goes_on = (run / run_log.CONFIG).is_file()
    if goes_on:
        config, start = go_on(config, run)
    with closing(_begin(config, run, start, goes_on)) as job:
        _train(job, run, goes_on)


def _begin(config: JobConfig, run: Path, start: Checkpoint | None, goes_on: bool) -> Job[Any]:
    """A job and, unless it goes on, its run directory."""
    trackers.maker(config.tracker)  # where it is absent, nothing begins
    job: Job[Any] = trainer_of(config).module.prepare(config, start)
    try:
        if not goes_on:
            run_log.create(run, configuration.dump(config))
    except BaseException:
        job.close()
        raise
    return job


def admit_parts(config: JobConfig) -> None:
    """Import the parts of the user's own that a configuration names."""
    from policies.common.own import admit

    environments.find_task(config.env_id)
    admit(configuration.dump(config.policy))
    trackers.admit(config.tracker)


def _train(job: Job[Any], run: Path, goes_on: bool) -> None:
    """Train in a run directory while no other process can."""
    with lock(run):
        if goes_on:
            done = iterations_done(job.start)
            run_log.record_resume(run, done, configuration.dump(job.config))
        if job.start is not None:
            set_aside_later(job.start)
        trainer_of(job.config).module.train(job, run)


def run_command(trainer: Trainer, args: argparse.Namespace) -> int:
    """All that the command of a trainer does, see `job_config.make_parser`: its exit status.

    In the end it says what to do with the run, or how to go on.
    """
    torch.set_num_threads(1)
    with open_group() as group:
        return _in_group(trainer, args, group)


def _in_group(trainer: Trainer, args: argparse.Namespace, group: Group) -> int:
    """The same in one of the processes that train together."""
    job: Job[Any] | None = None
    goes_on = args.resume is not None
    outcome: tuple[Any, Path, Checkpoint | None] | UserError = UserError()
    try:
        if group.is_first:
            outcome = config, run, start = _asked(trainer, args, group)
            job = _begin(config, run, start, goes_on)
    except UserError as error:
        outcome = error
    outcome = group.share(outcome)
    if isinstance(outcome, UserError):
        raise outcome
    config, run, start = outcome
    trainer = trainer_of(config)
    with closing(job or trainer.module.prepare(config, start)) as job:
        if not group.is_first:
            trainer.module.train(job, run)
            return 0
        try:
            _train(job, run, goes_on)
        except KeyboardInterrupt as error:
            _print_interrupted(trainer, config, run)
            return interrupted_status(error)
    _print_done(trainer, config, run)
    return 0


def _asked(
    trainer: Trainer, args: argparse.Namespace, group: Group
) -> tuple[Any, Path, Checkpoint | None]:
    """The configuration, directory and checkpoint that the command line asks for."""

    def load(path: str | Path, overrides: Any) -> Any:
        config = load_any_config(path, overrides, trainer.name)
        _check_group(config, group)
        return config

    if args.resume is not None:
        return resume(args, load)
    if not (args.config or trainer.preset):
        raise UserError("--config must name a file; this trainer has no preset")
    config = load(args.config or Path(str(resources.files("configs") / trainer.preset)), args.set)
    return config, Path(args.out) if args.out else run_log.new_directory(config.env_id), None


def _check_group(config: Any, group: Group) -> None:
    """UserError where these processes cannot train together."""
    if group.size == 1:
        return
    if not trainer_of(config).in_processes:
        raise UserError(
            f"{group.size} processes were started, but only policy.name = vision_performer "
            "trains on several; this policy takes workers instead"
        )
    if config.batch_size % group.size:
        raise UserError(
            f"batch_size must be a multiple of the {group.size} processes, got {config.batch_size}"
        )


def _print_interrupted(trainer: Trainer, config: JobConfig, run: Path) -> None:
    latest = checkpoint.in_run(run)
    at = f"; iteration {latest[-1].stem} is saved" if latest else " before the first checkpoint"
    typed = _typed_again(config)
    again = command_line(trainer.command, "--resume", run, *(["--set", *typed] if typed else []))
    print(f"\ninterrupted{at}; go on with: {again}")


def _print_done(trainer: Trainer, config: JobConfig, run: Path) -> None:
    if trainer.following is not None:
        commands = trainer.following(config, run)
    else:
        more = [f"iterations={2 * config.iterations}", *_typed_again(config)]
        commands = [
            (shlex.join(["tensorboard", "--logdir", str(run)]), "the curves"),
            (command_line(trainer.command, "--resume", run, "--set", *more), "train on"),
        ]
    print_next(config.iterations, run, config.env_id, *commands, own=own_names(config).values())


def own_names(config: Any) -> dict[str, str]:
    """Parts of the user's own that a configuration's policy names, by their keys: they are imported
    only where the command line names them."""
    found = {key: getattr(config.policy, key, "") for key in ("name", "controller", "feature_map")}
    return {key: name for key, name in found.items() if ":" in name}


def _typed_again(config: Any) -> list[str]:
    """The same as overrides of a run that is resumed."""
    typed = [f"policy.{key}={name}" for key, name in own_names(config).items()]
    return typed + ([f"tracker={config.tracker}"] if ":" in config.tracker else [])


def print_next(
    iterations: int, run: Path, env_id: str, *commands: tuple[str, str], own: Iterable[str] = ()
) -> None:
    """Say that a run is done and what to do with it: see it, measure it, and these commands; `own`
    are what `own_names` finds."""
    # An environment of one's own is imported only where the command line names it.
    named = [str(run), *(["--env", env_id] if ":" in env_id else [])]
    for name in own:
        named += ["--own", name]
    commands = (
        (command_line("training.rollout", *named, "--video", "episode.mp4"), "see it"),
        (command_line("training.evaluate", *named), "measure it on unseen seeds"),
        *commands,
    )
    print(f"done: {iterations} iterations in {run}; next:")
    for command, purpose in commands:
        print(f"  {command}  # {purpose}")
