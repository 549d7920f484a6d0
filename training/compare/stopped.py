"""Runs that are over before their last iteration: training gave numbers that are not finite, and
would give them again.

A file in the run's directory says so. Without it each rerun of a study would train on from the last
checkpoint, to the same end.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from pydantic.dataclasses import dataclass

from training.command.files import write_atomically
from training.io.state_files import Count, State, read_json

__all__ = ["STOPPED", "Stop", "note_stop", "stop_of"]

STOPPED = "stopped.json"


@dataclass(frozen=True, config=State)
class Stop:
    """Where and why a run stopped."""

    iterations: Count
    """That it has made."""
    reason: str


def stop_of(run: Path) -> Stop | None:
    """Why the run of a directory stopped for good; None where it did not.

    UserError when the file is damaged.
    """
    path = run / STOPPED
    return read_json(Stop, path) if path.is_file() else None


def note_stop(run: Path, stop: Stop) -> None:
    """Write it down."""
    run.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(stop), indent=1) + "\n"
    write_atomically(run / STOPPED, text.encode())
