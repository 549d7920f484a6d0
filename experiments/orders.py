"""The papers' orders by the numbers of a `table.csv`: what came out, without any model."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from experiments.config import ExperimentConfig
from experiments.experiment import TABLE
from experiments.summary import Models, Pair, compare
from experiments.task import Measure
from training.command.files import read_bytes
from training.settings.config import UserError

__all__ = ["read_table", "tell_orders"]


def read_table(path: Path, experiment: ExperimentConfig) -> dict[str, Models]:
    """What the models came to, by arm, from a table that `experiments.page.table` wrote.

    Args:
        path: the table, or the directory with it.
        experiment: whose arms it has; an arm that it lacks has no models.

    Raises:
        UserError: it is no such table, or one of another experiment.
    """
    path = path / TABLE if path.is_dir() else path
    try:
        rows = [*csv.DictReader(io.StringIO(read_bytes(path).decode(), newline=""))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as an experiment's table ({error})") from error
    found: dict[str, dict[int, Mapping[str, float | None]]]
    found = {arm.name: {} for arm in experiment.arms}
    for row in rows:
        arm, seed = row.pop("arm", None), row.pop("seed", None)
        if arm not in found or seed is None:
            raise UserError(
                f"{path}: a row must have one of the arms {', '.join(found)}, and a seed; "
                f"got {str(arm)[:40]!r}, {str(seed)[:40]!r}"
            )
        try:
            found[arm][int(seed)] = {k: float(v) if v else None for k, v in row.items()}
        except (TypeError, ValueError):
            raise UserError(f"{path}: arm {arm}, seed {seed[:40]}: a value is no number") from None
    return {**found}


def tell_orders(experiment: ExperimentConfig, path: Path) -> None:
    """Print every pair that a paper orders, by how much it holds, and how many do."""
    count: Counter[str] = Counter()
    for claim, measure, pairs in compare(experiment, read_table(path, experiment)):
        print(claim)
        for pair in pairs:
            count[pair.verdict] += 1
            print(f"  {pair.verdict}: {pair.better} before {pair.worse}, by {_told(pair, measure)}")
    print(", ".join(f"{verdict}: {number}" for verdict, number in sorted(count.items())))


def _told(pair: Pair, measure: Measure) -> str:
    mean, interval = pair.difference.mean, pair.difference.interval
    told = "no number" if mean is None else format(mean, measure.form)
    if interval is None:
        return told
    low, high = (format(end, measure.form) for end in interval)
    return f"{told} ({low} to {high})"
