"""What every trainer does around its training: command line, run directory, policy, interrupts."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import policies
from training import checkpoint, run_log
from training import config as configuration
from training.config import UserError
from training.files import lock
from training.state_files import check

__all__ = [
    "build_policy",
    "hold_and_train",
    "iterations_done",
    "make_parser",
    "print_next",
    "start_run",
    "state_of",
]

T = TypeVar("T")


def make_parser(
    command: str, description: str, fields: str, preset: str
) -> configuration.ArgumentParser:
    """The parser of the arguments that `start_run` reads; `fields` describes the configuration."""
    parser = configuration.ArgumentParser(
        prog=f"python -m {command}",
        description=description,
        epilog=f"fields of the configuration, for --set and --config, with defaults:\n{fields}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help=f"YAML (default: {preset})")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: runs/<env>-<time>)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the configuration, dotted where nested",
    )  # fmt: skip
    return parser


def start_run(
    args: argparse.Namespace, preset: str, load: Callable[[Any, list[str]], T],
    free_on_resume: Callable[[T], tuple[str, ...]], prepare: Callable[[T], object],
) -> tuple[T, Path, checkpoint.Checkpoint | None]:  # fmt: skip
    """What the command line asks for: configuration, run directory, checkpoint to go on from.

    Args:
        args: of `make_parser`.
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
    run = Path(args.resume)
    if args.out is not None and Path(args.out) != run:
        raise UserError(f"--resume {run} writes there, so --out {args.out} cannot be given too")
    saved = run / run_log.CONFIG
    if not saved.is_file():
        raise UserError(f"{run} holds no run to resume: there is no {saved}")
    config = load(args.config or saved, args.set)
    before, after = configuration.dump(load(saved, [])), configuration.dump(config)
    if before.keys() != after.keys():
        raise UserError(
            f"policy.name = {after['policy']['name']!r} differs from "
            f"{before['policy']['name']!r} in {saved}; a resumed run keeps its kind of policy"
        )
    free = free_on_resume(config)
    changed = [key for key in before if before[key] != after[key] and key not in free]
    if changed:
        raise UserError(
            f"{changed[0]} = {after[changed[0]]!r} differs from {before[changed[0]]!r} in {saved}; "
            f"a resumed run may change {', '.join(free)} alone"
        )
    paths = checkpoint.in_run(run)
    if not paths and run_log.has_rows(run):  # the first checkpoint is written before the first row
        raise UserError(
            f"{run} has rows in {run_log.METRICS} but no checkpoint to go on from; bring "
            f"{run / checkpoint.CHECKPOINTS} back, or begin anew with another --out"
        )
    start = checkpoint.load(paths[-1]) if paths else None
    done = iterations_done(start)
    if after["iterations"] < done:
        raise UserError(
            f"iterations = {after['iterations']}, but {run} has done {done}; a resumed run needs "
            "at least as many"
        )
    return config, run, start


def iterations_done(start: checkpoint.Checkpoint | None) -> int:
    """How many iterations a run has behind it; UserError for a checkpoint that is not a run's."""
    if start is None:
        return 0
    progress = start.state.get("progress")
    done = progress.get("iteration") if isinstance(progress, dict) else None
    if type(done) is not int or done < 0:
        raise UserError(
            f"{start.path} holds no progress of a run, so none can go on from it; it may be a "
            "policy alone"
        )
    return done


def state_of(start: checkpoint.Checkpoint, cls: type[T]) -> T:
    """What a trainer saved beside tensors. UserError when the checkpoint does not hold it."""
    try:
        return check(cls, start.state, start.path)
    except UserError as error:
        raise UserError(f"{error}; it may be another trainer's") from None


def build_policy(
    env_id: str, env: dict[str, Any], config: policies.PolicyConfig
) -> tuple[policies.ImplicitAttentionPolicy, float]:
    """The initial policy, and the simulated seconds that a step lasts (NaN if unknown).

    UserError when the environment cannot be made or the policy does not fit it.
    """
    with checkpoint.make_env(env_id, env) as opened:
        with checkpoint.fitting(f"cannot build the policy for {env_id}"):
            policy = policies.build(config, opened.observation_space, opened.action_space)
        fps = opened.metadata.get("render_fps", math.nan)
    return policy, 1 / fps


def hold_and_train(
    command: str, args: argparse.Namespace, config: T, run: Path,
    start: checkpoint.Checkpoint | None,
    train: Callable[[T, Path, checkpoint.Checkpoint | None], None],
) -> int:  # fmt: skip
    """Train while no other process can in the same directory: 0, or 130 when interrupted."""
    try:
        with lock(run):
            if args.resume is not None:
                done = iterations_done(start)
                run_log.record_resume(run, done, configuration.dump(config))
            train(config, run, start)
    except KeyboardInterrupt:
        latest = checkpoint.in_run(run)
        at = f"; iteration {latest[-1].stem} is saved" if latest else " before the first checkpoint"
        print(f"\ninterrupted{at}; go on with: python -m {command} --resume {quote(str(run))}")
        return 130
    return 0


def print_next(iterations: int, run: Path, env_id: str, *commands: tuple[str, str]) -> None:
    """Say that a run is done and what to do with it: see it, measure it, and these commands."""
    # An environment of one's own is imported only where the command line names it.
    named = f"{quote(str(run))} --env {quote(env_id)}" if ":" in env_id else quote(str(run))
    commands = (
        (f"python -m training.rollout {named} --video episode.mp4", "see it"),
        (f"python -m training.evaluate {named} --out evaluation", "measure it on unseen seeds"),
        *commands,
    )
    print(f"done: {iterations} iterations in {run}; next:")
    for command, purpose in commands:
        print(f"  {command}     {purpose}")
