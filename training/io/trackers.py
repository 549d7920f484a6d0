"""Experiment trackers beside TensorBoard: Trackio, Weights & Biases, MLflow, and custom ones.

A tracker receives the numbers of every row of metrics.csv. It can neither stop nor change a run: an
error in a tracker is reported once and ends only the tracking, and the states of the global random
number generators are restored after each call. A resumed run sends missed rows from metrics.csv.
"""

import contextlib
import io
import logging
import math
import os
import random
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

from pydantic import Field
from pydantic.dataclasses import dataclass

import foveate_extras
from policies.common.settings import entry_points, is_name
from training.command.errors import UserError
from training.command.files import write_json
from training.io.state_files import Count, State, read_json

GROUP = "foveate.trackers"
"""Group of the entry points by which installed packages provide trackers."""
PROJECT = "foveate"
"""The name under which trackers list all runs."""
_ADMITTED: dict[str, Any] = {}
"""Imported custom trackers by name."""


@runtime_checkable
class Tracker(Protocol):
    """A tracked run, constructed as Class(directory, config) from the run directory and the
    resolved configuration as plain data."""

    def last_step(self) -> int:
        """The last logged step, including earlier processes; 0 if there is none."""

    def log(self, values: Mapping[str, float], step: int) -> object:
        """Log the values of a step by name; steps are strictly increasing."""

    def close(self) -> object:
        """Close the tracked run, which may be resumed later."""


@dataclass(frozen=True, config=State)
class _Identity:
    """The tracked run that a resumed run continues: a small file in the run directory."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """The tracker's own name of the run."""
    step: Count = 0
    """The last step sent, for a tracker that does not report it."""


def _read(path: Path) -> _Identity | None:
    """The identity in a file, None without one. Raises UserError if the file is damaged."""
    return read_json(_Identity, path) if path.exists() else None


def _write(path: Path, run_id: str, step: int = 0) -> str:
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"id": run_id, "step": step}, indent=None)
    return run_id


def _known_or_new(path: Path) -> str:
    """The identifier in a file, which is created if it is missing."""
    known = _read(path)
    return _write(path, secrets.token_hex(4)) if known is None else known.id


class _Trackio:
    """Trackio, whose projects lie in TRACKIO_DIR of this machine. It sends elsewhere only if its
    TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # no telemetry
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        run_id = _known_or_new(directory / "trackio" / "tracked.json")
        name = f"{directory.resolve().name}-{run_id}"
        self._last = SQLiteStorage.get_max_step_for_run(PROJECT, name) or 0
        options = dict.fromkeys(("embed", "auto_log_gpu", "auto_log_cpu"), False)
        with contextlib.redirect_stdout(io.StringIO()):  # advice about its dashboard
            self._finish = trackio.finish
            self._run = trackio.init(PROJECT, name, config=config, resume="allow", **options)

    def last_step(self) -> int:
        return self._last

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._finish()


class _Wandb:
    """Weights & Biases, offline: folders below `wandb/` of the run directory.

    Each process that resumes a run writes a separate folder under the same id, so that
    `wandb sync` makes one run of them. wandb buffers its output, so the folder of a killed process
    is truncated: it is set aside, and its values are written again."""

    _DONE = "closed.json"

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # no telemetry
        import wandb

        folder, self._last = directory / "wandb", 0
        self._id = _known_or_new(folder / "tracked.json")
        for earlier in sorted(folder.glob("offline-run-*")):
            closed = _read(earlier / self._DONE)
            if closed is None:
                earlier.rename(folder / f"cut-short-{earlier.name}")
            else:
                self._last = max(self._last, closed.step)
        settings = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False)
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            project=project, name=directory.resolve().name, id=self._id, resume="allow",
            dir=directory, config=config, mode="offline", settings=settings,
        )  # fmt: skip

    def last_step(self) -> int:
        return self._last

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)
        self._last = step

    def close(self) -> None:
        self._run.finish()
        _write(Path(self._run.dir).parent / self._DONE, self._id, self._last)


class _Mlflow:
    """MLflow: a SQLite file in the run directory, unless MLFLOW_TRACKING_URI says otherwise."""

    _MOST_PARAMS, _MOST_CHARACTERS = 100, 500

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no telemetry
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        for name in ("alembic", "mlflow"):  # the log messages about creating the database
            logging.getLogger(name).setLevel(logging.ERROR)
        folder = (directory / "mlflow").resolve()
        folder.mkdir(exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        self._client, self._metric = MlflowClient(uri), Metric
        known = _read(folder / "tracked.json")
        self._id = self._create(folder, config) if known is None else known.id
        self._client.set_terminated(self._id, "RUNNING")

    def _create(self, folder: Path, config: dict[str, Any]) -> str:
        from mlflow.entities import Param

        name, where = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT), {}
        if "MLFLOW_TRACKING_URI" not in os.environ:
            where["artifact_location"] = (folder / "artifacts").as_uri()
        known = self._client.get_experiment_by_name(name)
        experiment = (known and known.experiment_id) or self._client.create_experiment(
            name, **where
        )
        run_id = self._client.create_run(experiment, run_name=folder.parent.name).info.run_id
        params = [Param(key, str(value)[: self._MOST_CHARACTERS]) for key, value in _flat(config)]
        for i in range(0, len(params), self._MOST_PARAMS):
            self._client.log_batch(run_id, params=params[i : i + self._MOST_PARAMS])
        return _write(folder / "tracked.json", run_id)

    def last_step(self) -> int:
        names = self._client.get_run(self._id).data.metrics
        steps = (m.step for key in names for m in self._client.get_metric_history(self._id, key))
        return max(steps, default=0)

    def log(self, values: Mapping[str, float], step: int) -> None:
        now_ms = int(1000 * time.time())
        metrics = [self._metric(key, value, now_ms, step) for key, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)  # all of them or none

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


_BUILT_IN: dict[str, Any] = {"trackio": _Trackio, "wandb": _Wandb, "mlflow": _Mlflow}
NAMES = ("none", *_BUILT_IN)
"""Built-in trackers; each but the first is an extra."""


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
    """The factory of the tracker with this name; None for `none`. Raises MissingExtraError if its
    extra is absent, UserError for a custom name that only comes from a file."""
    if name == "none":
        return None
    if name in _BUILT_IN:
        foveate_extras.require(f"tracker = {name}", name)
    known: dict[str, Any] = _BUILT_IN | _ADMITTED
    if name in known:
        found: Callable[[Path, dict[str, Any]], Tracker] = known[name]
        return found
    from attention import plugins

    try:
        return plugins.find(GROUP, "tracker", name, Tracker, NAMES, trusted=False)
    except ValueError as error:
        raise UserError(f"{error}: to resume the run, add --set tracker={name}") from None


class Tracking:
    """A run's tracker by name, whose errors end the tracking alone; `directory` is the run's, and
    `config` its resolved configuration as plain data. Raises what `maker` does."""

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
        """Send a row, unless the tracked run holds its step; omits numbers that are not finite."""
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

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            with _kept_random_numbers(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the trackers' own
                yield
        except (Exception, SystemExit) as error:
            self._tracker = None
            said = " ".join(f"{type(error).__name__}: {error}".split())
            line = f"warning: tracker {self._name} failed ({said}); the run continues without it, "
            print(f"{line}and --resume sends it the missed rows", file=sys.stderr, flush=True)


@contextlib.contextmanager
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
