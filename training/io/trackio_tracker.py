"""Trackio as a tracker: on this machine, where it keeps all of its projects (TRACKIO_DIR).

It sends elsewhere only where its own TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.io.tracked_run import PROJECT, TrackedRun

__all__ = ["Tracked"]


class Tracked:
    """A run of Trackio; see `training.io.trackers.Tracker`."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # no telemetry
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        path = directory / "trackio" / "tracked.json"
        known = TrackedRun.read(path) or TrackedRun(secrets.token_hex(4)).write(path)
        name = f"{directory.resolve().name}-{known.id}"
        self._last = SQLiteStorage.get_max_step_for_run(PROJECT, name) or 0
        with contextlib.redirect_stdout(io.StringIO()):  # advice about its dashboard
            self._finish, self._run = trackio.finish, trackio.init(
                PROJECT, name, config=config, resume="allow", embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip

    def last_step(self) -> int:
        """The last step in the project's file."""
        return self._last

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the values to the project's file within half a second."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Write the remaining values."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._finish()
