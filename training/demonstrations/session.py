"""Record, resume, summarise and verify a directory of demonstrations."""

import dataclasses
import re
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envs import find_task
from envs.task import SUCCESS
from training.collect import environments
from training.collect.pool import WorkerDiedError
from training.collect.processes import ProcessPool
from training.command.files import CONFIG, lock, write_json
from training.command.progress import ProgressBar
from training.demonstrations.format import EPISODES, MASTER, Recording, check_same
from training.demonstrations.reader import DemoReader, read_demo, read_recording, verify_demo
from training.demonstrations.recorder import Job, Task, record
from training.demonstrations.summary import PICTURE, SUMMARY, draw, summarise
from training.demonstrations.writer import write_master
from training.io.checkpoint import CHECKPOINTS
from training.io.config import UserError

_MASTER_EVERY_S = 60.0


def _begun(job: Job) -> Job:
    """The job according to the directory's files, which may lack newer settings of the environment.

    Raises UserError if they hold demonstrations of another job.
    """
    master = job.directory / MASTER
    if not master.exists():
        return job
    found = read_recording(master)
    settings = environments.completed(job.recording.env_id, found.env)
    check_same(master, dataclasses.replace(found, env=settings), job.recording)
    return dataclasses.replace(job, recording=found)


def _finished(job: Job) -> dict[int, int]:
    """Steps of each complete episode in the directory, by number; removes files of killed writers.

    Raises UserError if the directory holds demonstrations of another job or a damaged file.
    """
    for left_over in (job.directory / EPISODES).glob(".*.hdf5.*"):
        left_over.unlink()
    names = (path.stem for path in (job.directory / EPISODES).glob("*.hdf5"))
    numbers = sorted(int(name) for name in names if re.fullmatch("[0-9]{6}", name))
    return {number: len(read_demo(job.directory, number, job.recording)) for number in numbers}


def _record_missing(
    job: Job, lengths: dict[int, int], episodes: int, workers: int, valid_share: float
) -> None:
    """Record the episodes that are not in `lengths`, keeping the master file up to date."""
    lengths = dict(lengths)
    missing = [number for number in range(episodes) if number not in lengths]
    if not missing:
        return
    written = -_MASTER_EVERY_S
    with (
        ProgressBar(total=len(missing) + len(lengths), initial=len(lengths), unit="episode") as bar,
        closing(record(job, missing, workers)) as recorded,
    ):
        for number, steps in recorded:
            lengths[number] = steps
            bar.set_postfix_str(f"{steps} steps", refresh=False)
            bar.update()
            if time.monotonic() - written > _MASTER_EVERY_S:
                write_master(job.directory, job.recording, lengths, valid_share)
                written = time.monotonic()


def record_all(job: Job, episodes: int, workers: int, valid_share: float) -> DemoReader:
    """Record the missing ones of `episodes`, write and print a summary; returns the reader.

    Args:
        job: the recording job.
        episodes: total number of episodes.
        workers: processes.
        valid_share: share of the episodes held out in mask/valid.

    Raises:
        UserError: the directory holds something else, or an episode cannot be recorded.
        KeyboardInterrupt: stopped; finished episodes can be read, as a line reports.
    """
    directory, began = job.directory, time.monotonic()
    try:
        for name in (CONFIG, CHECKPOINTS):
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
            _record_missing(job, before, episodes, workers, valid_share)
        except (UserError, OSError, KeyboardInterrupt) as error:
            state = _rescue(job, valid_share)
            if isinstance(error, KeyboardInterrupt):
                print(f"\ninterrupted; {state}")
                raise
            raise UserError(f"recording stopped: {error}; {state}") from None
        lengths = _finished(job)
        wall_s = time.monotonic() - began
        try:
            write_master(directory, job.recording, lengths, valid_share)
            new = {n: k for n, k in lengths.items() if n not in before}
            return _report(directory, new, wall_s)
        except OSError as error:
            raise UserError(f"cannot write in {directory}: {error.strerror or error}") from None


def _rescue(job: Job, valid_share: float) -> str:
    """Make the finished episodes readable after an interruption; returns a status sentence."""
    kept = _finished(job)
    state = (
        f"{len(kept)} finished episodes are in {job.directory}, and the same command records "
        "the others"
    )
    try:
        write_master(job.directory, job.recording, kept, valid_share)
    except OSError as error:
        state += f" ({MASTER} could not be brought up to date: {error.strerror or error})"
    return state


def _report(directory: Path, new: dict[int, int], wall_s: float) -> DemoReader:
    """Write and print the summary; `new` has the steps of the new episodes. The reader."""
    reader = DemoReader(directory)
    facts = summarise(reader)
    facts["last_recording"] = {
        "episodes": len(new), "steps": sum(new.values()), "wall_s": round(wall_s, 1),
    }  # fmt: skip
    write_json(directory / SUMMARY, facts, allow_nan=False)
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
    return reader


@dataclass(frozen=True)
class _Verifier:
    verify: Callable[[Path, int, Recording], int]
    reader: DemoReader

    def run(self, task: Task) -> int:
        """Check an episode and return its steps. Raises UserError if it is damaged."""
        return self.verify(self.reader.directory, task.number, self.reader.recording)

    def close(self) -> None:
        """Nothing is held."""


def verify(directory: Path, workers: int) -> None:
    """Read every frame of a directory and print a confirmation; raises UserError for damage."""
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
