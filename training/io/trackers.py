"""Experiment trackers beside TensorBoard: their interface, their names, and how a run uses one.

A tracker receives the numbers of every row of metrics.csv. It can neither stop nor change a run: an
error in a tracker is reported once and ends only the tracking, and the states of the global random
number generators are restored after each call. A resumed run sends missed rows from metrics.csv.
"""

from __future__ import annotations

import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import foveate_extras
from policies.common.names import entry_points, is_name
from training.command.errors import UserError

__all__ = ["GROUP", "NAMES", "Tracker", "Tracking", "admit", "check_name", "maker"]

GROUP = "foveate.trackers"
"""Group of the entry points by which installed packages provide trackers."""
NONE = "none"
NAMES = (NONE, "trackio", "wandb", "mlflow")
"""Built-in trackers; each but the first is an extra, in a separate file beside this one."""
_ADMITTED: dict[str, Any] = {}
"""Imported custom trackers by name."""


@runtime_checkable
class Tracker(Protocol):
    """A tracked run, constructed as Class(directory, config) from the run directory and the
    resolved configuration as plain data.
    """

    def last_step(self) -> int:
        """The last logged step, including earlier processes; 0 if there is none."""

    def log(self, values: Mapping[str, float], step: int) -> object:
        """Log the values of a step by name; steps are strictly increasing."""

    def close(self) -> object:
        """Close the tracked run, which may be resumed later."""


def check_name(name: str) -> str:
    """The name itself. Raises ValueError if there is no such tracker."""
    if name in NAMES or is_name(name) or name in entry_points(GROUP):
        return name
    known = ", ".join((*NAMES, *entry_points(GROUP)))
    raise ValueError(
        f"tracker must be one of {known}, got {name!r}; module:Class names a custom tracker"
    )


def admit(name: str) -> None:
    """Import a tracker that the user named as "module:Class". Raises ValueError if that fails."""
    if is_name(name) and name not in _ADMITTED:
        from attention import plugins  # imported late because it loads PyTorch

        _ADMITTED[name] = plugins.find(GROUP, "tracker", name, Tracker, NAMES)


def maker(name: str) -> Callable[[Path, dict[str, Any]], Tracker] | None:
    """The factory of the tracker with this name; None for `none`.

    Raises MissingExtraError if its extra is absent, UserError for a custom name that only comes
    from a file.
    """
    if name == NONE:
        return None
    if name in NAMES:
        foveate_extras.require(f"tracker = {name}", name)
        found: Any = import_module(f"training.io.{name}_tracker").Tracked
        return found
    if name in _ADMITTED:
        return _ADMITTED[name]
    from attention import plugins

    try:
        return plugins.find(GROUP, "tracker", name, Tracker, NAMES, trusted=False)
    except ValueError as error:
        raise UserError(f"{error}: --set tracker={name} where a run is resumed") from None


class Tracking:
    """A run's tracker, whose errors end the tracking alone.

    Args:
        name: name of the tracker.
        directory: run directory.
        config: the resolved configuration, plain data.

    Raises what `maker` does.
    """

    def __init__(self, name: str, directory: Path, config: dict[str, Any]) -> None:
        self._name, self._make = name, maker(name)
        self._given, self._last = (directory, config), 0
        self._tracker: Tracker | None = None

    def begin(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Open the tracked run, and send it the rows so far that it does not hold."""
        if self._make is None:
            return
        with self._harmless():
            self._tracker = tracker = self._make(*self._given)
            self._last = tracker.last_step()
        for step, values in rows:
            self.add(values, step)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Send a row, unless the tracked run holds its step; numbers that are not finite are left
        out."""
        if self._tracker is None or step <= self._last:
            return
        with self._harmless():
            self._tracker.log({k: v for k, v in values.items() if math.isfinite(v)}, step)
            self._last = step

    def close(self) -> None:
        """Close the tracked run in this process."""
        if self._tracker is not None:
            with self._harmless():
                self._tracker.close()
        self._tracker = None

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            with _kept_random_numbers(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the trackers' own
                yield
        except (Exception, SystemExit) as error:
            self._tracker = None
            said = " ".join(f"{type(error).__name__}: {error}".split())
            print(
                f"warning: tracker {self._name} failed ({said}); the run continues without it, and "
                "--resume sends it the missed rows",
                file=sys.stderr,
                flush=True,
            )


@contextmanager
def _kept_random_numbers() -> Iterator[None]:
    """Restore the states of the global random number generators after the block."""
    import numpy as np
    import torch

    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002
