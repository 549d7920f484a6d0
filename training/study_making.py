"""Making the parts of a study in turn: one that fails holds up what needs it, and nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from training.config import UserError
from training.study_runs import Run, StoppedError

__all__ = ["Failures", "Unit", "make"]

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

    def attempt(self, unit: Unit) -> None:
        """Make a unit, or note why not. Interrupts and a full disk are raised."""
        if unit.start in self.runs:
            self._note(unit, f"not possible without {unit.start}")
            return
        try:
            unit.do()
        except UserError as error:
            reason = " ".join(str(error).split())
            print(f"error: {reason}", file=sys.stderr)
            self._note(unit, reason)
        except StoppedError as error:
            if error.status == 130:
                raise
            self._note(unit, f"exit status {error.status}, see the command's messages")

    def _note(self, unit: Unit, reason: str) -> None:
        print(f"failed: {unit.label}", flush=True)
        self.reasons.append(f"{unit.label}: {reason}")
        if isinstance(unit, Run):
            self.runs.add(unit.directory)


def make(
    units: Sequence[Unit], write_page: Callable[[Sequence[str], Sequence[str]], object]
) -> Failures:
    """Try what is missing, in turn; the page now and then, and however this ends.

    Args:
        units: in the order in which they are made, those that others need before them.
        write_page: is given what is missing and what of it failed, in words.
    """
    waiting = [unit for unit in units if not unit.done()]
    failures, kept = Failures(), list[Unit]()
    due = time.monotonic()

    def write() -> None:
        write_page([unit.label for unit in (*kept, *waiting)], failures.reasons)

    try:
        while waiting:
            if time.monotonic() >= due:
                write()
                due = time.monotonic() + PAGE_EVERY_S
            number = len(units) - len(waiting) + 1
            print(f"[{number}/{len(units)}] {waiting[0].label}", flush=True)
            failures.attempt(waiting[0])
            unit = waiting.pop(0)
            if not unit.done():
                kept.append(unit)
    finally:
        write()
    return failures
