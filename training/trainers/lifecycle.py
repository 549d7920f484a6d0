"""What every trainer does around its training: command line, run directory, policy, interrupts."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch

import policies
from training.command.command_lines import command_line
from training.command.files import lock
from training.command.signals import interrupted_status
from training.episodes import environments
from training.episodes.environments import make_env
from training.runs import checkpoint, run_log
from training.runs.state_files import check
from training.settings import config as configuration
from training.settings.config import UserError
from training.trainers.resuming import iterations_done, resume, set_aside_later

__all__ = [
    "build_policy",
    "hold_and_train",
    "own_names",
    "print_next",
    "start_run",
    "state_of",
    "train_and_tell",
    "typed_again",
]

T = TypeVar("T")


def start_run(
    command: str, args: argparse.Namespace, preset: str, load: Callable[[Any, list[str]], T],
    free_on_resume: Callable[[T], tuple[str, ...]], prepare: Callable[[T], object],
) -> tuple[T, Path, checkpoint.Checkpoint | None]:  # fmt: skip
    """What the command line asks for: configuration, run directory, checkpoint to go on from.

    Args:
        command: module of the trainer.
        args: of `training.trainers.job_config.make_parser`.
        preset: file among the package's configs that is read when none is named.
        load: reads a configuration from a path and overrides.
        free_on_resume: keys of a configuration that a resumed run may change.
        prepare: raises UserError for a job that cannot begin, before its directory is made.
    """
    if args.resume is None:
        packaged = resources.files("configs") / preset
        config = load(args.config or Path(str(packaged)), args.set)
        prepare(config)
        plain = configuration.dump(config)
        run = Path(args.out) if args.out else run_log.new_directory(plain["env_id"])
        run_log.create(run, plain)
        return config, run, None
    return resume(command, args, load, free_on_resume)


def state_of(start: checkpoint.Checkpoint, cls: type[T]) -> T:
    """What a trainer saved beside tensors. UserError when the checkpoint does not hold it."""
    try:
        return check(cls, start.state, start.path)
    except UserError as error:
        raise UserError(f"{error}; it may be another trainer's") from None


def build_policy(
    env_id: str, env: dict[str, Any], config: policies.AnyPolicyConfig
) -> tuple[Any, float]:
    """The initial policy, and the simulated seconds that a step lasts (NaN if unknown).

    UserError when the environment cannot be made or the policy does not fit it.
    """
    with make_env(env_id, env) as opened:
        with checkpoint.fitting(f"cannot build the policy for {env_id}"):
            policy = policies.build_for(config, opened, typed=False)
        step_s = environments.step_s(opened)
    return policy, step_s


def hold_and_train(
    command: str, args: argparse.Namespace, config: T, run: Path,
    start: checkpoint.Checkpoint | None,
    train: Callable[[T, Path, checkpoint.Checkpoint | None], None],
) -> int:  # fmt: skip
    """Train while no other process can in the same directory: 0, or that of an interruption."""
    try:
        with lock(run):
            if args.resume is not None:
                done = iterations_done(start)
                run_log.record_resume(run, done, configuration.dump(config))
            if start is not None:
                set_aside_later(start)
            train(config, run, start)
    except KeyboardInterrupt as error:
        latest = checkpoint.in_run(run)
        at = f"; iteration {latest[-1].stem} is saved" if latest else " before the first checkpoint"
        typed = typed_again(config)
        again = command_line(command, "--resume", run, *(["--set", *typed] if typed else []))
        print(f"\ninterrupted{at}; go on with: {again}")
        return interrupted_status(error)
    return 0


def train_and_tell(
    command: str, args: argparse.Namespace, preset: str, load: Callable[[Any, list[str]], T],
    free_on_resume: tuple[str, ...], prepare: Callable[[T], object],
    train: Callable[[T, Path, checkpoint.Checkpoint | None], None],
) -> int:  # fmt: skip
    """All that a trainer in one process does, see `start_run`: its exit status. In the end it says
    what to do with the run, and how to go on."""
    torch.set_num_threads(1)
    config: Any
    config, run, start = start_run(command, args, preset, load, lambda _: free_on_resume, prepare)
    status = hold_and_train(command, args, config, run, start, train)
    if status == 0:
        more = [f"iterations={2 * config.iterations}", *typed_again(config)]
        print_next(
            config.iterations,
            run,
            config.env_id,
            (shlex.join(["tensorboard", "--logdir", str(run)]), "the curves"),
            (command_line(command, "--resume", run, "--set", *more), "train on"),
            own=own_names(config).values(),
        )
    return status


def own_names(config: Any) -> dict[str, str]:
    """Parts of the user's own that a configuration's policy names, by their keys: they are imported
    only where the command line names them."""
    found = {key: getattr(config.policy, key, "") for key in ("name", "controller", "feature_map")}
    return {key: name for key, name in found.items() if ":" in name}


def typed_again(config: Any) -> list[str]:
    """The same as overrides of a run that is resumed."""
    return [f"policy.{key}={name}" for key, name in own_names(config).items()]


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
