"""Weights & Biases as a tracker, offline: folders below `wandb/` of the run directory.

Each process that resumes a run writes a separate folder under the same id, so that
`wandb sync` makes one run of them. wandb holds back what it writes: of a process that was killed
the folder is truncated. It is set aside, and its values are written again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.io.tracked_run import PROJECT, TrackedRun

__all__ = ["Tracked"]

_FOLDERS, _DONE = "offline-run-*", "closed.json"


class Tracked:
    """A run of wandb; see `training.io.trackers.Tracker`."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # no telemetry
        import wandb

        folder = directory / "wandb"
        known = TrackedRun.read(folder / "tracked.json")
        self._id = (known or TrackedRun(secrets.token_hex(4)).write(folder / "tracked.json")).id
        self._last = 0
        for earlier in sorted(folder.glob(_FOLDERS)):
            closed = TrackedRun.read(earlier / _DONE)
            if closed is None:
                earlier.rename(folder / f"cut-short-{earlier.name}")
            else:
                self._last = max(self._last, closed.step)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=directory.resolve().name,
            id=self._id,
            resume="allow",
            dir=directory,
            config=config,
            mode="offline",
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )

    def last_step(self) -> int:
        """The last step in the closed folders."""
        return self._last

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Queue the values for the folder's file."""
        self._run.log(dict(values), step=step)
        self._last = step

    def close(self) -> None:
        """Write the remaining values and the end marker."""
        self._run.finish()
        TrackedRun(self._id, self._last).write(Path(self._run.dir).parent / _DONE)
