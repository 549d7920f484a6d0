"""Jobs of a comparison: their status, a selection of them, and the scheduler that runs them.

A study, a search and an experiment each write a list of jobs. `run_jobs` runs those that are
missing. A failure blocks only the jobs that need the one that failed.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from foveate_extras import MissingExtraError
from training.collect.processes import open_processes
from training.compare.config import slug
from training.io.config import UserError
from training.io.fingerprint import Difference

__all__ = ["DONE", "MISSING", "Failures", "Job", "Status", "missing_jobs", "run_jobs", "select"]

PAGE_EVERY_S = 300.0
"""Shortest time between two versions of the page while jobs run."""


class Status(NamedTuple):
    """Whether the result of a job exists and is the one that the job would produce now."""

    state: Literal["done", "stale", "missing"]
    """Stale: a result exists, but of other inputs. Missing: there is none, or a part of it."""
    reason: str = ""
    """Of a stale result: one sentence with the file, what differs and what to do."""
    change: Difference | None = None
    """Of a stale result: the key that differs, its value before and its value now."""


DONE, MISSING = Status("done"), Status("missing")


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
    if not words:
        return list(jobs)

    def matches(job: Job, word: str) -> bool:
        name = slug(word)
        return word in job.label or (name != "" and name in job.label)

    for word in words:
        if not any(matches(job, word) for job in jobs):
            raise UserError(
                f"--only must have words of the {noun}'s parts, such as {jobs[-1].label!r}, or of "
                f"its variants' names, got {word!r}"
            )
    wanted = [job for job in jobs if any(matches(job, word) for word in words)]
    makers = {job.model: job for job in jobs if job.model is not None}
    for job in wanted:
        needed = makers.get(job.requires) if job.requires is not None else None
        if needed is not None and all(needed is not one for one in wanted):
            wanted.append(needed)
    kept = {id(job) for job in wanted}
    return [job for job in jobs if id(job) in kept]


@dataclass
class Failures:
    """Jobs that failed; they are tried again when the command is run again."""

    reasons: list[str] = field(default_factory=list)
    """A line for each, for the page."""
    models: set[Path] = field(default_factory=set)
    """Models that were not trained, and those that need one of them."""

    def conclude(self, job: Job, result: Future[None]) -> bool:
        """Whether a job succeeded; its failure, an environment's own error included, is noted.

        Interrupts and refusals of the operating system, such as a full disk, are raised.
        """
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
            return True
        self.note(job, reason)
        return False

    def note(self, job: Job, reason: str) -> None:
        """Note a failure."""
        print(f"failed: {job.label}", flush=True)
        self.reasons.append(f"{job.label}: {reason}")
        if job.model is not None:
            self.models.add(job.model)


def run_jobs(
    jobs: Sequence[Job],
    missing: Sequence[Job],
    write_page: Callable[[Sequence[str], Sequence[str]], object],
    parallel: int = 1,
) -> Failures:
    """Run the missing jobs in order; write the page now and then, and however this ends.

    Args:
        jobs: all selected jobs, which are counted; a job comes after the one that it requires.
        missing: those to run.
        write_page: receives the labels of missing jobs and the reasons of failures.
        parallel: jobs that run at the same time, each in its own process; 1: in this process.
    """
    waiting, running = list(missing), dict[Future[None], Job]()
    failures, kept = Failures(), list[Job]()
    started = len(jobs) - len(waiting)
    due = time.monotonic()

    def write() -> None:
        left = (*kept, *running.values(), *waiting)
        write_page([job.label for job in left], failures.reasons)

    pool = None
    if parallel > 1:
        os.environ["TQDM_DISABLE"] = "1"  # progress bars of processes would overwrite each other
        pool = open_processes(parallel, _prepare_process)
    try:
        while waiting or running:
            if time.monotonic() >= due:
                write()
                due = time.monotonic() + PAGE_EVERY_S
            while len(running) < parallel and (job := _next(waiting, running.values())):
                started += 1
                print(f"[{started}/{len(jobs)}] {job.label}", flush=True)
                if job.requires in failures.models:
                    failures.note(job, f"not possible without {job.requires}")
                    kept.append(job)
                else:
                    running[_here(job) if pool is None else pool.submit(job.execute)] = job
                waiting.remove(job)
            for future in wait(running, PAGE_EVERY_S, FIRST_COMPLETED).done:
                job = running.pop(future)
                if not failures.conclude(job, future):
                    kept.append(job)
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
    return failures


def _prepare_process() -> None:
    from tqdm import tqdm

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
