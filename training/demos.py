"""Record demonstrations: episodes of an environment's scripted expert, as files to learn from.

python -m training.demos --env BimanualSweep-v0 --episodes 1000 --out demos/sweep
python -m training.demos --verify demos/sweep

The same command goes on where one was stopped. Episode i depends on `seed + i` and the settings
alone, so the files are the same bytes however many processes record them.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.demos"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import dataclasses
import json
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium import spaces

from envs import find_task
from envs.task import SUCCESS
from training.command.command_lines import command_line
from training.command.files import lock, write_atomically
from training.command.progress import ProgressBar
from training.command.signals import exit_status, interrupted_status
from training.episodes import environments
from training.episodes.environments import make_env
from training.episodes.pool import WorkerDiedError
from training.episodes.processes import ProcessPool
from training.episodes.seeds import VALIDATION_SEEDS_FROM
from training.evaluation.players import positive, settings_given
from training.recordings.format import (
    EPISODES,
    MASTER,
    ArraySpec,
    Recording,
    check_same,
    observation_spec,
)
from training.recordings.reader import DemoReader, read_demo, read_recording, verify_demo
from training.recordings.recorder import SEGMENT_STEPS, Job, Task, record
from training.recordings.writer import decisive_packages, write_master
from training.runs import run_log
from training.runs.checkpoint import CHECKPOINTS
from training.settings.config import ArgumentParser, UserError
from training.trainers.next_command import cloning_command

__all__ = ["main", "run"]

_MASTER_EVERY_S = 60.0


def _plan(arguments: argparse.Namespace) -> Job:
    """What is to be recorded; UserError when the environment cannot be."""
    settings = environments.resolved(arguments.env, settings_given(arguments.set))
    with make_env(arguments.env, settings) as env:
        if not env.has_wrapper_attr("expert_action"):
            raise UserError(f"--env {arguments.env} has no expert_action() to record")
        space = env.action_space
        if not isinstance(space, spaces.Box):
            raise UserError(f"--env {arguments.env} has actions {space}, not a Box of numbers")
        if arguments.noise and not space.is_bounded():
            raise UserError(
                f"--noise {arguments.noise} is a share of the action's range, but the actions of "
                f"{arguments.env} have no bounds"
            )
        for key, value in settings.items():
            if not _is_json(value):
                raise UserError(
                    f"--set {key}: a recording's settings are finite numbers, text, and lists of "
                    f"them, got {value!r}"
                )
        recording = Recording(
            env_id=arguments.env,
            env=settings,
            seed=arguments.seed,
            after_done_steps=arguments.after_success_steps,
            noise=arguments.noise,
            observation=observation_spec(env.observation_space),
            action=ArraySpec.of(space),
            packages=decisive_packages(),
        )
    return Job(
        Path(arguments.out), settings, Recording.from_json(recording.to_json(), Path(arguments.out))
    )


def _is_json(value: Any) -> bool:
    """Whether a setting can be written as JSON, which knows no infinity and no date."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _begun(job: Job) -> Job:
    """The job as the directory's files say it, which may know fewer settings of the environment.

    UserError when they hold anything else's demonstrations.
    """
    master = job.directory / MASTER
    if not master.exists():
        return job
    found = read_recording(master)
    settings = environments.completed(job.recording.env_id, found.env)
    check_same(master, dataclasses.replace(found, env=settings), job.recording)
    return dataclasses.replace(job, recording=found)


def _finished(job: Job) -> dict[int, int]:
    """Steps of each whole episode in the directory, by number; what a killed writer left, gone.

    UserError when the directory holds anything else's demonstrations, or a damaged file.
    """
    for left_over in (job.directory / EPISODES).glob(".*.hdf5.*"):
        left_over.unlink()
    names = (path.stem for path in (job.directory / EPISODES).glob("*.hdf5"))
    numbers = sorted(int(name) for name in names if re.fullmatch("[0-9]{6}", name))
    return {number: len(read_demo(job.directory, number, job.recording)) for number in numbers}


def _record_missing(job: Job, lengths: dict[int, int], arguments: argparse.Namespace) -> None:
    """Record the episodes that are not in `lengths`, keeping the master file up to date."""
    lengths = dict(lengths)
    missing = [number for number in range(arguments.episodes) if number not in lengths]
    if not missing:
        return
    written = -_MASTER_EVERY_S
    with (
        ProgressBar(total=len(missing) + len(lengths), initial=len(lengths), unit="episode") as bar,
        closing(record(job, missing, arguments.workers)) as episodes,
    ):
        for number, steps in episodes:
            lengths[number] = steps
            bar.set_postfix_str(f"{steps} steps", refresh=False)
            bar.update()
            if time.monotonic() - written > _MASTER_EVERY_S:
                write_master(job.directory, job.recording, lengths, arguments.valid_share)
                written = time.monotonic()


def _run_job(job: Job, arguments: argparse.Namespace) -> int:
    directory, began = job.directory, time.monotonic()
    try:
        for name in (run_log.CONFIG, CHECKPOINTS):
            if (directory / name).exists():
                raise UserError(
                    f"--out {directory} holds a training run ({name}): give another directory"
                )
        (directory / EPISODES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {directory} cannot be written: {error.strerror}") from None
    with lock(directory):
        job = _begun(job)
        before = _finished(job)
        try:
            _record_missing(job, before, arguments)
        except (UserError, OSError, KeyboardInterrupt) as error:
            state = _rescue(job, arguments.valid_share)
            if isinstance(error, KeyboardInterrupt):
                print(f"\ninterrupted; {state}")
                return interrupted_status(error)
            raise UserError(f"recording stopped: {error}; {state}") from None
        lengths = _finished(job)
        wall_s = time.monotonic() - began
        try:
            write_master(directory, job.recording, lengths, arguments.valid_share)
            _report(directory, {n: k for n, k in lengths.items() if n not in before}, wall_s)
        except OSError as error:
            raise UserError(f"cannot write in {directory}: {error.strerror or error}") from None
    return 0


def _rescue(job: Job, valid_share: float) -> str:
    """Make what is there readable, after recording has stopped; what to say of it."""
    kept = _finished(job)
    state = (
        f"{len(kept)} finished episodes are in {job.directory}, and the same command goes on with "
        "the others"
    )
    try:
        write_master(job.directory, job.recording, kept, valid_share)
    except OSError as error:
        state += f" ({MASTER} could not be brought up to date: {error.strerror or error})"
    return state


def _report(directory: Path, new: dict[int, int], wall_s: float) -> None:
    """Write the summary and print it; `new` has the steps of the episodes just recorded."""
    from training.recordings.summary import PICTURE, SUMMARY, draw, summarise

    reader = DemoReader(directory)
    facts = summarise(reader)
    facts["last_recording"] = {
        "episodes": len(new), "steps": sum(new.values()), "wall_s": round(wall_s, 1),
    }  # fmt: skip
    text = json.dumps(facts, indent=1, allow_nan=False) + "\n"
    write_atomically(directory / SUMMARY, text.encode())
    draw(reader, directory / PICTURE)
    rate = f", {sum(new.values()) / wall_s:.1f} steps/s" if new else ""
    frame = f", {facts['frame_bytes'] / 1e3:.1f} kB a frame" if facts["frame_bytes"] else ""
    print(
        f"{len(reader)} episodes ({len(new)} new) in {directory}: {facts['steps']} steps, "
        f"{facts['bytes'] / 1e6:.1f} MB{frame}; {wall_s:.0f} s{rate}"
    )
    means = {**facts["final_info_mean"], "reward": facts["reward_last"]["mean"]}
    task = find_task(reader.recording.env_id)
    if task is not None and task.headline != SUCCESS and task.headline in means:
        means = {task.headline: means.pop(task.headline), **means}
        means.pop(SUCCESS, None)
    shown = ", ".join(f"{key} {value:.3f}" for key, value in means.items())
    print(f"expert, mean at the end of an episode: {shown}")
    print(f"see {directory / PICTURE}; next:")
    verify = command_line("training.demos", "--verify", directory)
    print(f"  {verify}  # read every frame once, and check")
    clone = cloning_command(reader)
    if clone is not None:
        print(f"  {clone}  # train a policy on them")


@dataclass(frozen=True)
class _Verifier:
    verify: Callable[[Path, int, Recording], int]
    reader: DemoReader

    def run(self, task: Task) -> int:
        """Check an episode; its steps. UserError when it is damaged."""
        return self.verify(self.reader.directory, task.number, self.reader.recording)

    def close(self) -> None:
        """Nothing is held."""


def _verify(directory: Path, workers: int) -> int:
    reader = DemoReader(directory)
    numbers = [demo.number for demo in reader.demos]
    count = len(numbers)
    make = partial(_Verifier, verify_demo, reader)
    with closing(ProcessPool(make, min(workers, max(count, 1)))) as pool:  # HDF5 may crash
        try:
            results = pool.in_order([Task(number) for number in numbers])
            shown = ProgressBar(
                results, total=count, unit="episode", disable=not sys.stderr.isatty()
            )
            steps = sum(shown)
        except WorkerDiedError as error:
            raise UserError(f"--verify {directory}: {error}") from None
    print(f"{count} episodes in {reader.directory} are whole: {steps} steps, every checksum right")
    return 0


def _number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], Any]:
    """A number within [low, high], for argparse."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"must be of type {kind.__name__}, from {low} to {high}, got {text!r}"
            )
        return value

    return read


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="training.demos",
        description=(__doc__ or "").split("\n")[0],
        epilog=environments.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--env", metavar="ID", help="Gymnasium id; it must have expert_action()")
    parser.add_argument(
        "--episodes", type=positive, default=1000, help="how many in all (default %(default)s)"
    )
    parser.add_argument("--out", metavar="DIR", help="directory to record into, or to go on in")
    parser.add_argument("--verify", metavar="DIR", help="check every byte of a directory instead")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="setting of the environment, as in --set episode_s=5",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=positive, default=len(os.sched_getaffinity(0)),
        help="processes (default: one for each core, here %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0,
        help=f"episode i uses seed S + i; those from {VALIDATION_SEEDS_FROM} up are for "
        "evaluation (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--after-success-steps", type=_number(int, -1, 10**6), default=10, metavar="K",
        help="steps to record after the first success, or after the environment's expert_done "
        "(nothing is left to do) first holds; -1: to the episode's end (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--noise", type=_number(float, 0, 10), default=0.0, metavar="SCALE",
        help="standard deviation of noise on the executed actions, in a random half of the "
        f"episode's {SEGMENT_STEPS}-step segments, as a share of half the action's range; the "
        "recorded action is the expert's own (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--valid-share", type=_number(float, 0, 0.9), default=0.05, metavar="SHARE",
        help="of the episodes, held out in mask/valid (default %(default)s)",
    )  # fmt: skip
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    if arguments.verify is not None:
        return _verify(Path(arguments.verify), arguments.workers)
    if arguments.env is None or arguments.out is None:
        raise UserError("give --env ID and --out DIR to record, or --verify DIR to check")
    last = arguments.seed + arguments.episodes - 1
    if not 0 <= arguments.seed <= last < VALIDATION_SEEDS_FROM:
        raise UserError(
            f"--seed {arguments.seed} with --episodes {arguments.episodes} uses the seeds "
            f"{arguments.seed} to {last}, where only 0 to {VALIDATION_SEEDS_FROM - 1} may be used"
        )
    return _run_job(_plan(arguments), arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its exit status, as of `exit_status`."""
    return exit_status(lambda: run(argv))
