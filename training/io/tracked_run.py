"""The tracked run that a resumed run continues: a small file in the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from training.command.files import write_json
from training.io.state_files import Count, State, read_json

__all__ = ["PROJECT", "TrackedRun"]

PROJECT = "foveate"
"""What trackers call all runs together."""


@dataclass(frozen=True, config=State)
class TrackedRun:
    """Identity of a tracked run."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """By which the tracker finds it."""
    step: Count = 0
    """The last step sent, where the tracker itself cannot be asked."""

    @staticmethod
    def read(path: Path) -> TrackedRun | None:
        """None if there is none yet. Raises UserError if the file is damaged."""
        return read_json(TrackedRun, path) if path.exists() else None

    def write(self, path: Path) -> TrackedRun:
        """Keep it; itself. Raises OSError."""
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"id": self.id, "step": self.step}, indent=None)
        return self
