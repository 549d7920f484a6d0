"""Finds the checkpoint from which a run resumes: `--resume RUN`, or one of its checkpoints.

A checkpoint is valid if its file is intact, its configuration and iteration match the run and the
file's name, and metrics.csv holds the rows of all iterations up to it. If the newest is not, the
error names the newest valid one and the command that resumes from it.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from training.algorithms.registry import load_any_config, trainer_of
from training.algorithms.trainer import Trainer, missing_keys, resolved
from training.collect import env_settings
from training.command.errors import command_line
from training.io import checkpoint, run_log
from training.io import config as configuration
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.fingerprint import differences
from training.io.overrides import read_overrides


class _OtherJobError(UserError):
    """Raised for a checkpoint whose configuration differs from its run's."""


def resume(
    args: argparse.Namespace, load: Callable[[Any, Any], Any]
) -> tuple[Any, Path, Checkpoint | None]:
    """Configuration, directory and checkpoint of the run that a command line resumes.

    Args:
        args: of `training.algorithms.command.make_parser`.
        load: reads a configuration from a path and overrides.

    Raises UserError if the run cannot be resumed.
    """
    run, chosen = _place(args)
    file = _configuration_file(run, args)
    before, missing = _saved(file, load, chosen)
    config = load(args.config or file, {**missing, **read_overrides(args.set)})
    words = ["--config", args.config] if args.config else []
    words += ["--set", *args.set] if args.set else []
    return config, run, _start_of(run, chosen, before, config, words)


def resume_newest(config: Any, run: Path) -> tuple[Any, Checkpoint | None]:
    """`config` with the run's start and its known keys, and the run's newest checkpoint. Raises
    UserError if the run cannot be resumed with it.
    """
    trainer = trainer_of(config)
    chosen = next(reversed(checkpoint.in_run(run)), None)
    load = partial(load_any_config, trainer=trainer.name)
    before, missing = _saved(run / run_log.CONFIG, load, chosen)
    if type(before) is type(config):
        kept = [key for key in (*missing, "init_from") if trainer.has(key)]
        config = dataclasses.replace(config, **{key: getattr(before, key) for key in kept})
    return config, _start_of(run, chosen, before, config, [])


def _start_of(
    run: Path, chosen: Path | None, before: Any, config: Any, words: list[str]
) -> Checkpoint | None:
    """The checkpoint from which a run configured as `before` resumes, configured as `config`.

    Raises UserError if it cannot; `words` are the command line's beside --resume.
    """
    trainer, file = trainer_of(before), run / run_log.CONFIG
    saved, now = configuration.dump(before), configuration.dump(config)
    changed = differences(saved, now, trainer.free)
    changed.sort(key=lambda one: one.key != "policy.name")  # other keys depend on it
    for key, there, here in changed:
        raise UserError(
            f"{key} = {here!r} differs from {there!r} in {file}; a resumed run may change "
            f"{', '.join(trainer.free)} alone"
        )
    if chosen is None:
        if run_log.has_rows(run):  # the first checkpoint comes before the first row
            raise UserError(
                f"{run} has rows in {run_log.METRICS} but no checkpoint to resume from; bring "
                f"{run / checkpoint.CHECKPOINTS} back, or start a new run with another --out"
            )
        return None
    start = _whole(run, chosen, trainer, saved, words)
    done = iterations_done(start)
    if now["iterations"] < done:
        raise UserError(
            f"iterations = {now['iterations']}, but {run} has done {done}; a resumed run needs "
            "at least as many"
        )
    return start


def _whole(
    run: Path, chosen: Path, trainer: Trainer, config: dict[str, Any], words: list[str]
) -> Checkpoint:
    """The chosen checkpoint; raises UserError if the run cannot resume from it, with what to do."""
    file = run / run_log.CONFIG

    def read(path: Path) -> Checkpoint:
        start = checkpoint.read(path)
        done = iterations_done(start)
        if done != checkpoint.iteration_of(path):
            raise UserError(
                f"{path} holds iteration {done}, not that of its name; it may be a copy from "
                "elsewhere"
            )
        check_same_job(start, trainer, config, file)
        run_log.check_rows(run, done)
        return start

    try:
        return read(chosen)
    except UserError as error:
        for other in reversed(checkpoint.in_run(run)):
            try:
                read(other)  # this rejects `chosen` again
            except UserError:
                continue
            again = command_line(trainer.command, "--resume", other, *words)
            raise UserError(
                f"{error}; the newest checkpoint that this run can resume from is {other}: {again}"
            ) from None
        if isinstance(error, _OtherJobError):
            raise UserError(
                f"{error}; put that back, or remove {file}, which is then restored from the "
                "checkpoint"
            ) from None
        raise


def _place(args: argparse.Namespace) -> tuple[Path, Path | None]:
    """The run directory and its named or newest checkpoint, or None."""
    given = Path(args.resume)
    named = given.suffix == ".safetensors" and not given.is_dir()
    run = given.parent.parent if named else given
    found = checkpoint.in_run(run)
    if named and given not in found:
        raise UserError(
            f"--resume takes a run directory, or one of the checkpoints of a run, got {given}; "
            f"those of {run} are {', '.join(path.name for path in found) or 'none'}"
        )
    if args.out is not None and Path(args.out) != run:
        raise UserError(f"--resume {run} writes there, so --out {args.out} cannot be given too")
    return run, given if named else next(reversed(found), None)


def _configuration_file(run: Path, args: argparse.Namespace) -> Path:
    """The run's config.yaml; if it is missing, it is restored from the newest intact checkpoint."""
    saved = run / run_log.CONFIG
    if saved.is_file():
        return saved
    whole = checkpoint.newest_whole(run)
    if whole is None:
        raise UserError(f"{run} holds no run to resume: there is no {saved}")
    config = checkpoint.read(whole).config
    asked = configuration.read_yaml(args.config) if args.config else {}
    if ":" in config.get("env_id", "") and asked.get("env_id") != config["env_id"]:
        raise UserError(
            f"there is no {saved}, and {whole} names an environment that would be imported, "
            f"{str(config['env_id'])!r}, which only your configuration may request; give that "
            f"with --config"
        )
    _check_imports(config.get("env", {}), asked, f"there is no {saved}, and {whole}")
    try:
        with run_log.lock(run):
            run_log.write_config(run, json.loads(json.dumps(config)))
    except (OSError, UnicodeError) as error:
        raise UserError(f"there is no {saved}, and it cannot be written: {error}") from None
    print(f"there was no {saved}; it is restored from {whole}")
    return saved


def _check_imports(env: dict[str, Any], asked: dict[str, Any], complaint: str) -> None:
    """UserError if a checkpoint's environment has wrappers or registrations that the user's
    configuration does not have."""
    own = asked.get("env")
    given = env_settings.normal({**(own if isinstance(own, dict) else {}), **asked})
    for key in (env_settings.REGISTER, env_settings.WRAPPERS):
        if env.get(key, []) != given.get(key, []):
            raise UserError(
                f"{complaint} names code that would run, {key} = {env.get(key, [])!r}, which only "
                "your configuration may request; give that with --config"
            )


def _saved(
    file: Path, load: Callable[[Any, Any], Any], chosen: Path | None
) -> tuple[Any, dict[str, Any]]:
    """The configuration in a run's file, and the keys that the run is too old to know; UserError
    when it has been damaged."""
    try:
        before = load(file, {})
        missing = missing_keys(type(before), configuration.read_yaml(file))
        return dataclasses.replace(before, **missing), missing
    except UserError as error:
        if chosen is None:
            raise
        raise UserError(
            f"{error}; fix that, or remove {file}, which is then restored from the checkpoint"
        ) from None


def check_same_job(start: Checkpoint, own: Trainer, config: dict[str, Any], file: Path) -> None:
    """UserError when a checkpoint was trained with another configuration than `config`, of its
    `own` trainer and from `file`, by more than a resumed run may change."""
    free = own.free
    trained = resolved(own.config, start.config, str(start.path))
    for key, there, here in differences(trained, config, free):
        raise _OtherJobError(
            f"{key} = {here!r} in {file} differs from {there!r}, with which {start.path} was "
            f"trained; a resumed run may change {', '.join(free)} alone"
        )


def iterations_done(start: Checkpoint | None) -> int:
    """The number of iterations that a run has completed; raises UserError for a checkpoint that is
    not a run's.
    """
    if start is None:
        return 0
    progress = start.state.get("progress")
    done = progress.get("iteration") if isinstance(progress, dict) else None
    if type(done) is not int or done < 0:
        raise UserError(
            f"{start.path} holds no progress of a run, so none can be resumed from it; it may "
            f"hold a policy only"
        )
    return done


def set_aside_later(start: Checkpoint) -> None:
    """Rename the run's checkpoints that are later than the one that it resumes from."""
    try:
        aside = checkpoint.set_aside_after(start.path)
    except OSError as error:
        raise UserError(
            f"cannot set aside the checkpoints after {start.path}: {error.strerror}"
        ) from None
    if aside:
        print(
            f"resuming from {start.path}; later checkpoints are kept as *.aside until their "
            "iterations are done again"
        )
