"""Making the parts of a study in turn: one that fails holds up what needs it, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from foveate_extras import MissingExtraError
from training.collect.processes import open_processes
from training.compare.config import slug
from training.compare.runs import Run
from training.io.config import UserError

__all__ = ["Failures", "Unit", "chosen", "make"]

PAGE_EVERY_S = 300.0
"""The page is written after a unit that ends this long after the last time, or later."""


class Unit(Protocol):
    """Something that a study makes once."""

    @property
    def label(self) -> str:
        """What is printed before it, and what the page calls it."""

    @property
    def start(self) -> Path | None:
        """The run that must be finished before."""

    @property
    def trained(self) -> Path | None:
        """The directory of the model that it makes, from which others may start; None: it makes
        none."""

    @property
    def alone(self) -> bool:
        """Whether nothing else may run beside it: it measures times."""

    def done(self) -> bool:
        """Whether it is there."""

    def check(self) -> None:
        """UserError when something is there that the study would not make now."""

    def do(self) -> None:
        """Make it, or what of it is missing."""


@dataclass
class Failures:
    """What was tried and failed, and so is not tried again before the next rerun."""

    reasons: list[str] = field(default_factory=list)
    """A line for each, as the page shows it."""
    runs: set[Path] = field(default_factory=set)
    """The runs among them, and those that need one of them."""

    def conclude(self, unit: Unit, made: Future[None]) -> None:
        """Note why a unit failed, if it did, an environment's own error too.

        Interrupts and what the operating system refuses, such as a full disk, are raised.
        """
        try:
            made.result()
        except (UserError, MissingExtraError) as error:
            reason = " ".join(str(error).split())
            print(f"error: {reason}", file=sys.stderr)
            self.note(unit, reason)
        except BrokenProcessPool:
            raise UserError(
                f"a process of the study ended while it made this: {unit.label} (out of memory?); "
                "what is finished is kept, and the same command goes on"
            ) from None
        except OSError:
            raise
        except Exception as error:
            traceback.print_exception(error)
            self.note(unit, f"{type(error).__name__}: {' '.join(str(error).split())}")

    def note(self, unit: Unit, reason: str) -> None:
        """Note a failure."""
        print(f"failed: {unit.label}", flush=True)
        self.reasons.append(f"{unit.label}: {reason}")
        if unit.trained is not None:
            self.runs.add(unit.trained)


def chosen(units: Sequence[Unit], words: Sequence[str]) -> list[Unit]:
    """The units whose label has one of the words, and the runs that these need.

    A word may be an arm's name as the configuration has it. UserError for a word that no label has.
    """

    def has(unit: Unit, word: str) -> bool:
        as_named = slug(word)
        return word in unit.label or (as_named != "" and as_named in unit.label)

    for word in words:
        if not any(has(unit, word) for unit in units):
            raise UserError(
                f"--only must have words of the study's parts, such as {units[-1].label!r}, or of "
                f"its arms' names, got {word!r}"
            )
    wanted = [unit for unit in units if any(has(unit, word) for word in words)]
    makers = {unit.trained: unit for unit in units if unit.trained is not None}
    for unit in wanted:
        needed = makers.get(unit.start) if unit.start is not None else None
        if needed is not None and needed not in wanted:
            wanted.append(needed)
    return [unit for unit in units if unit in wanted]


def make(
    units: Sequence[Unit],
    write_page: Callable[[Sequence[str], Sequence[str]], object],
    parallel: int = 1,
) -> Failures:
    """Try what is missing, in turn; the page now and then, and however this ends.

    Args:
        units: in the order in which they are begun, those that others need before them.
        write_page: is given what is missing and what of it failed, in words.
        parallel: units made at the same time, each in a process of its own; 1: in this one.
    """
    waiting = [unit for unit in units if not unit.done()]
    running: dict[Future[None], Unit] = {}
    failures, kept = Failures(), list[Unit]()
    begun = len(units) - len(waiting)
    due = time.monotonic()

    def write() -> None:
        missing = (*kept, *running.values(), *waiting)
        write_page([unit.label for unit in missing], failures.reasons)

    pool = None
    if parallel > 1:
        os.environ["TQDM_DISABLE"] = "1"  # bars of several processes would overwrite each other
        pool = open_processes(parallel, _begin)
    try:
        while waiting or running:
            if time.monotonic() >= due:
                write()
                due = time.monotonic() + PAGE_EVERY_S
            while len(running) < parallel and (unit := _next(waiting, running.values())):
                begun += 1
                print(f"[{begun}/{len(units)}] {unit.label}", flush=True)
                if unit.start in failures.runs:
                    failures.note(unit, f"not possible without {unit.start}")
                    kept.append(unit)
                else:
                    running[_here(unit) if pool is None else pool.submit(unit.do)] = unit
                waiting.remove(unit)
            for future in wait(running, PAGE_EVERY_S, FIRST_COMPLETED).done:
                unit = running.pop(future)
                failures.conclude(unit, future)
                if isinstance(unit, Run) and unit.stop is not None:
                    print(f"stopped for good: {unit.label}: {unit.stop.reason}", flush=True)
                    begun += len(waiting)
                    waiting[:] = [one for one in waiting if not _measures(one, unit)]
                    begun -= len(waiting)
                if not unit.done():
                    kept.append(unit)
    finally:
        if pool is not None:
            for process in multiprocessing.active_children():  # their files are whole at any moment
                process.terminate()
            pool.shutdown(cancel_futures=True)
        write()
    return failures


def _measures(unit: Unit, run: Run) -> bool:
    """Whether a unit is about the policy of a run."""
    return not isinstance(unit, Run) and unit.start == run.directory


def _begin() -> None:
    """In a process of the study, before its first unit."""
    from tqdm import tqdm

    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own outlives a process that is terminated


def _next(waiting: Sequence[Unit], running: Collection[Unit]) -> Unit | None:
    """The first that can begin beside those that run."""
    if any(unit.alone for unit in running):
        return None
    unmade = {unit.trained for unit in (*waiting, *running)} - {None}
    for unit in waiting:
        if unit.alone and running:
            return None
        if unit.start not in unmade:
            return unit
    return None


def _here(unit: Unit) -> Future[None]:
    """Make it in this process. Interrupts are raised."""
    future: Future[None] = Future()
    try:
        unit.do()
        future.set_result(None)
    except Exception as error:
        future.set_exception(error)
    return future
