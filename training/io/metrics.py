"""A run's metrics.csv, read as columns."""

import csv
import io
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs import Task, find_task
from training.command.files import CONFIG, METRICS, read_bytes
from training.io.config import UserError, read_yaml


@dataclass(frozen=True)
class Curve:
    """The columns of one run's metrics.csv: name -> values (iterations,), NaN where empty."""

    name: str
    columns: dict[str, np.ndarray]
    task: Task | None = None
    """The description of the run's environment; None if it is not known."""


def read_metrics(run: str | Path) -> Curve:
    """Read `metrics.csv` of a run directory (or such a file). Raises UserError if there is none."""
    path = Path(run)
    path = path / METRICS if os.path.isdir(path) else path
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path).decode(), newline=""))
        rows = [row for row in reader if None not in row and None not in row.values()]
        names = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as a run's metrics.csv ({error})") from error
    if "iteration" not in names:
        raise UserError(f"{path}: has no column 'iteration', so it is not a run's metrics.csv")
    for row in rows:
        if not re.fullmatch(r"\d{1,15}", row["iteration"]):
            raise UserError(
                f"{path}: iteration = {row['iteration'][:40]!r}, where a whole number is needed"
            )
    columns = {name: np.array([_number(row[name]) for row in rows]) for name in names}
    return Curve(path.resolve().parent.name, columns, _task_of(path))


def _task_of(metrics: Path) -> Task | None:
    """The description of the environment that the configuration beside the metrics names."""
    try:
        env_id = read_yaml(metrics.with_name(CONFIG)).get("env_id")
    except UserError:
        return None
    return find_task(env_id) if isinstance(env_id, str) else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
