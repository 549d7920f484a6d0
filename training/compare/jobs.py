"""Jobs of a comparison: their status, a selection of them, and the scheduler that runs them.

A study, a search and an experiment each write a list of jobs. `run_jobs` runs those that are
missing. A failure blocks only the jobs that need the one that failed.
"""

import multiprocessing
import os
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from foveate_extras import MissingExtraError
from policies.common.settings import ADMITTED
from training.collect.processes import open_processes
from training.command.files import lock, write_atomically
from training.command.signals import interrupted_status
from training.compare.config import slug
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import Difference

PAGE = "report.html"
PAGE_EVERY_S = 300.0
"""Shortest time between two versions of the page while jobs run."""


class Status(NamedTuple):
    """Whether the result of a job exists and is the one that the job would produce now."""

    state: Literal["done", "stale", "missing"]
    """Stale: a result exists, but of other inputs. Missing: there is none, or a part of it."""
    reason: str = ""
    """One sentence on a stale result: the file, the difference and the remedy."""
    change: Difference | None = None
    """The key of a stale result that differs, its value before and its value now."""


DONE, MISSING = Status("done"), Status("missing")


def stale(made: str, change: Difference, noun: str, what: str) -> Status:
    """The status of a result that was `made` from other inputs than the present ones of the study
    or experiment (`noun`); the message says to move `what` away."""
    now = change.describe(f"the {noun} now has")
    reason = f"{made} with {now}; give another --out, or move {what} away"
    return Status("stale", reason, change)


class Job(ABC):
    """One result of a comparison. Running it again resumes it."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Its name on the terminal and on the page."""

    @property
    def requires(self) -> Path | None:
        """Directory of the model that must be finished before."""
        return None

    @property
    def model(self) -> Path | None:
        """Directory of the model that the job trains; None: it trains none."""
        return None

    @property
    def exclusive(self) -> bool:
        """Whether no other job may run at the same time, as it measures times."""
        return False

    @property
    def stop_reason(self) -> str | None:
        """Why training ended for good before its last iteration; None: it did not."""
        return None

    @abstractmethod
    def status(self) -> Status:
        """Done, stale or missing. Raises UserError where settings or a file are wrong."""

    @abstractmethod
    def execute(self) -> None:
        """Produce the result, or the part of it that is missing."""


def missing_jobs(jobs: Sequence[Job]) -> list[Job]:
    """The jobs to run. Raises UserError where one is stale."""
    missing = []
    for job in jobs:
        status = job.status()
        if status.state == "stale":
            raise UserError(status.reason)
        if status.state == "missing":
            missing.append(job)
    return missing


def select(jobs: Sequence[Job], words: Sequence[str], noun: str) -> list[Job]:
    """The jobs whose label contains one of the words, and the jobs that train what these need.

    A word may be the name of a variant as the configuration has it; without words, all jobs.
    Raises UserError for a word that no label contains.
    """

    def matches(job: Job, word: str) -> bool:
        name = slug(word)
        return word in job.label or (name != "" and name in job.label)

    for word in words:
        if not any(matches(job, word) for job in jobs):
            raise UserError(
                f"words that select jobs of the {noun} must be in a job's label, such as "
                f"{jobs[-1].label!r}, or in the name of a variant, got {word!r}"
            )
    chosen = {job.label for job in jobs if not words or any(matches(job, word) for word in words)}
    makers = {job.model: job.label for job in jobs if job.model is not None}
    for job in reversed(jobs):  # a job comes after the one that it requires
        if job.label in chosen and job.requires in makers:
            chosen.add(makers[job.requires])
    return [job for job in jobs if job.label in chosen]


def run_jobs(
    jobs: Sequence[Job],
    missing: Sequence[Job],
    write_page: Callable[[Sequence[str], Sequence[str]], object],
    parallel: int = 1,
) -> list[str]:
    """Run the missing jobs in order; write the page from time to time and at the end, also after an
    error.

    Interrupts and refusals of the operating system, such as a full disk, are raised. Any other
    error, an environment's own included, fails its job and those that need it.

    Args:
        jobs: all selected jobs, which are counted; a job comes after the one that it requires.
        missing: those to run.
        write_page: receives the labels of missing jobs and the reasons of failures.
        parallel: jobs that run at the same time, each in its own process; 1: in this process.

    Returns:
        A line for each job that failed.
    """
    waiting, running = list(missing), dict[Future[None], Job]()
    failed: dict[str, str] = {}
    untrained: set[Path | None] = set()
    started, due = len(jobs) - len(waiting), time.monotonic()

    def write() -> None:
        left = (*(job.label for job in (*running.values(), *waiting)),)
        reasons = [f"{label}: {reason}" for label, reason in failed.items()]
        write_page([*failed, *left], reasons)

    def fail(job: Job, reason: str) -> None:
        print(f"failed: {job.label}", flush=True)
        failed[job.label] = reason
        untrained.update({job.model} - {None})

    pool = None
    if parallel > 1:
        os.environ["TQDM_DISABLE"] = "1"  # progress bars of processes would overwrite each other
        pool = open_processes(parallel, _prepare_process, tuple(ADMITTED))
    try:
        while waiting or running:
            if time.monotonic() >= due:
                write()
                due = time.monotonic() + PAGE_EVERY_S
            while len(running) < parallel and (job := _next(waiting, running.values())):
                started += 1
                print(f"[{started}/{len(jobs)}] {job.label}", flush=True)
                if job.requires in untrained:
                    fail(job, f"not possible without {job.requires}")
                else:
                    running[_here(job) if pool is None else pool.submit(job.execute)] = job
                waiting.remove(job)
            for future in wait(running, PAGE_EVERY_S, FIRST_COMPLETED).done:
                job = running.pop(future)
                reason = _failure(job, future)
                if reason is not None:
                    fail(job, reason)
                elif job.stop_reason is not None:
                    print(f"stopped for good: {job.label}: {job.stop_reason}", flush=True)
                    started += len(waiting)
                    waiting[:] = [one for one in waiting if one.model or one.requires != job.model]
                    started -= len(waiting)
    finally:
        if pool is not None:
            for process in multiprocessing.active_children():  # their files are whole at any moment
                process.terminate()
            pool.shutdown(cancel_futures=True)
        write()
    return [f"{label}: {reason}" for label, reason in failed.items()]


def _failure(job: Job, result: Future[None]) -> str | None:
    """Why a job failed, which is printed; None if it succeeded."""
    try:
        result.result()
    except (UserError, MissingExtraError) as error:
        reason = " ".join(str(error).split())
        print(f"error: {reason}", file=sys.stderr)
    except BrokenProcessPool:
        raise UserError(
            f"a worker process ended during this job: {job.label} (out of memory?); "
            "finished jobs are kept, and the same command resumes"
        ) from None
    except OSError:
        raise
    except Exception as error:
        traceback.print_exception(error)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    else:
        return None
    return reason


def _prepare_process(components: tuple[str, ...]) -> None:
    """Prepare a process for jobs, which may import what the user's configuration names."""
    from tqdm import tqdm

    from policies.common.plugins import admit_name

    for name in components:
        with suppress(ValueError):  # an object of the other process
            admit_name(name)
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its default lock outlives a process that is terminated


def _next(waiting: Sequence[Job], running: Collection[Job]) -> Job | None:
    """The first job that can start beside those that run."""
    if any(job.exclusive for job in running):
        return None
    unfinished = {job.model for job in (*waiting, *running)} - {None}
    for job in waiting:
        if job.exclusive and running:
            return None
        if job.requires not in unfinished:
            return job
    return None


def _here(job: Job) -> Future[None]:
    """Run a job in this process. Interrupts are raised."""
    future: Future[None] = Future()
    try:
        job.execute()
        future.set_result(None)
    except Exception as error:
        future.set_exception(error)
    return future


def check_owner(out: Path, config: str, title: str, noun: str, option: str = "--out") -> bool:
    """Whether the directory that an option names holds this comparison already.

    Args:
        out: the directory.
        config: name of the file that holds a comparison's configuration.
        title: of this comparison.
        noun: study, or experiment.
        option: for the error.

    Raises UserError where it holds another comparison, or other files.
    """
    if (out / config).is_file():
        there = configuration.read_yaml(out / config).get("title")
        if there != title:
            raise UserError(
                f"{out} holds another {noun}, {there!r}, not {title!r}: give another {option}"
            )
        return True
    if out.exists() and (not out.is_dir() or any(p.name[0] != "." for p in out.iterdir())):
        raise UserError(f"{out} holds files that are of no {noun}: give another {option}")
    return False


def write_changed(path: Path, data: bytes) -> bool:
    """Write a file unless it holds these bytes; returns whether it was written."""
    if path.is_file() and path.read_bytes() == data:
        return False
    write_atomically(path, data)
    return True


class Comparison(ABC):
    """The base of studies and experiments, each of which writes a matrix of jobs."""

    noun: ClassVar[str]
    """Its name in messages."""
    config_file: ClassVar[str]
    """Name of the file that holds its configuration."""
    settings: Any
    """Its configuration."""
    out: Path
    """Its directory."""

    @abstractmethod
    def jobs(self) -> Sequence[Job]:
        """All jobs, in the order in which they start."""

    @abstractmethod
    def config_text(self) -> str:
        """Its configuration, resolved, as YAML."""

    @abstractmethod
    def check(self, missing: Sequence[Job]) -> None:
        """Raise UserError where missing jobs cannot run; nothing is written."""

    @abstractmethod
    def prepare(self, missing: Sequence[Job]) -> None:
        """Prepare the directory, once it is locked."""

    @abstractmethod
    def write_page(self, missing: Sequence[str], failed: Sequence[str] = ()) -> bool:
        """Write the page and the tables from the results; returns whether the page changed.

        Args:
            missing: labels of missing jobs.
            failed: a reason for each of them that failed.
        """

    @abstractmethod
    def command(self, out: Path | None = None, only: Sequence[str] = ()) -> str:
        """The shell command that runs it."""

    def run(self, only: Sequence[str] = (), page_alone: bool = False) -> int:
        """Run the missing jobs, then write the page; the exit status, 2 where jobs failed.

        Args:
            only: words of the jobs to run, see `jobs.select`; empty: all.
            page_alone: write the page from the results that exist.

        Raises:
            UserError: a configuration is wrong, or a result is stale.
        """
        try:
            with self.file_errors():
                return self._run(only, page_alone)
        except KeyboardInterrupt as error:
            command = self.command(self.out, only)
            print(f"\nstopped; finished jobs are kept; resume with: {command}", flush=True)
            return interrupted_status(error)

    @contextmanager
    def file_errors(self) -> Iterator[None]:
        """A context that turns errors of reading and writing into a UserError."""
        try:
            yield
        except BrokenPipeError:
            raise  # of standard output
        except OSError as error:
            raise UserError(
                f"{self.out}: a file of the {self.noun} cannot be written: {error}"
            ) from None

    def _run(self, only: Sequence[str], page_alone: bool) -> int:
        jobs = self.jobs()
        missing = missing_jobs(jobs)
        selected = select(jobs, only, self.noun)
        chosen = {job.label for job in selected}
        now = [job for job in missing if job.label in chosen]
        later = [job.label for job in missing if job.label not in chosen]
        page = self.out / PAGE
        if page_alone or not now:
            self._make_directory()
            if not (self.out / self.config_file).is_file() or not missing:
                write_changed(self.out / self.config_file, self.config_text().encode())
            written = self.write_page([job.label for job in missing])
            print(f"{'wrote' if written else 'nothing to do; see'} {page}")
            return 0
        self.check(now)
        self._make_directory()
        with lock(self.out):
            write_changed(self.out / self.config_file, self.config_text().encode())
            self.prepare(now)
            failures = run_jobs(
                selected, now, lambda left, why: self.write_page([*left, *later], why),
                self.settings.parallel,
            )  # fmt: skip
        command = self.command(only=only if failures else ())
        if failures:
            print(
                f"{len(failures)} parts failed, {page} lists them; try them again with: {command}"
            )
            return 2
        rest = f"{len(later)} parts are left, {page} lists them; run them with: {command}"
        print(rest if later else f"done: {page}")
        return 0

    def _make_directory(self) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {self.out} cannot be written: {error.strerror}") from None
