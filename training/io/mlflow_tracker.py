"""MLflow as a tracker: a SQLite file in the run directory, unless MLFLOW_TRACKING_URI says
otherwise."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.io.tracked_run import PROJECT, TrackedRun

__all__ = ["Tracked"]

_MOST_PARAMS, _MOST_CHARACTERS = 100, 500


class Tracked:
    """A run of MLflow; see `training.io.trackers.Tracker`."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no telemetry
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        for name in ("alembic", "mlflow"):  # the log messages about creating the database
            logging.getLogger(name).setLevel(logging.ERROR)
        folder = (directory / "mlflow").resolve()
        folder.mkdir(exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        self._client, self._metric = MlflowClient(uri), Metric
        tracked = TrackedRun.read(folder / "tracked.json")
        if tracked is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            known = self._client.get_experiment_by_name(name)
            where = {} if "MLFLOW_TRACKING_URI" in os.environ else {
                "artifact_location": (folder / "artifacts").as_uri()
            }  # fmt: skip
            experiment = (
                self._client.create_experiment(name, **where)
                if known is None
                else known.experiment_id
            )
            run = self._client.create_run(experiment, run_name=directory.resolve().name)
            tracked = TrackedRun(run.info.run_id)
            params = [Param(key, str(value)[:_MOST_CHARACTERS]) for key, value in _flat(config)]
            for i in range(0, len(params), _MOST_PARAMS):
                self._client.log_batch(tracked.id, params=params[i : i + _MOST_PARAMS])
            tracked.write(folder / "tracked.json")
        self._id = tracked.id
        self._client.set_terminated(self._id, "RUNNING")

    def last_step(self) -> int:
        """The last step of all its metrics."""
        names = self._client.get_run(self._id).data.metrics
        steps = (m.step for key in names for m in self._client.get_metric_history(self._id, key))
        return max(steps, default=0)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log all values or none of them."""
        now_ms = int(1000 * time.time())
        metrics = [self._metric(key, value, now_ms, step) for key, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
