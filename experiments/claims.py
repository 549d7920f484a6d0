"""The papers' orders by the numbers of a `table.csv`: what came out, without any model."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.config import ExperimentConfig
from experiments.experiment import TABLE
from experiments.summary import Models, Pair, compare
from experiments.task import Measure
from training.command.files import read_bytes
from training.io.config import UserError

__all__ = ["print_claims", "read_table"]


def read_table(path: Path) -> dict[str, Models]:
    """What the models came to, by arm, from a table that `experiments.page.table` wrote.

    UserError where it is no such table.
    """
    try:
        rows = [*csv.DictReader(io.StringIO(read_bytes(path).decode(), newline=""))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} must be an experiment's table.csv: {error}") from None
    found: dict[str, dict[int, Mapping[str, float | None]]] = {}
    for row in rows:
        arm, seed = row.pop("arm", None), row.pop("seed", None)
        if arm is None or seed is None:
            raise UserError(
                f"{path} must be an experiment's table.csv: a row has an arm and a seed, "
                f"got {str(arm)[:40]!r}, {str(seed)[:40]!r}"
            )
        try:
            numbers = {name: _finite(value) if value else None for name, value in row.items()}
            models, number = found.setdefault(arm, {}), int(seed)
        except (TypeError, ValueError):
            raise UserError(
                f"{path}: arm {arm[:40]}, seed {seed[:40]}: a value is no number"
            ) from None
        if number in models:
            raise UserError(f"{path}: arm {arm[:40]} has seed {number} twice")
        models[number] = numbers
    return {**found}


def _finite(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def print_claims(experiment: ExperimentConfig, path: Path, known: Sequence[str]) -> None:
    """Print every pair that a paper orders, by how much it holds, and how many do.

    Args:
        experiment: whose orders, arms and seeds.
        path: its table, or the directory with it.
        known: the arms that the table can have, of which the experiment has some.

    Raises:
        UserError: there is no table, or it is another experiment's.
    """
    path = path / TABLE if path.is_dir() else path
    there = read_table(path)
    for arm in there:
        if arm not in known:
            raise UserError(f"{path}: arms must be of {', '.join(known)}, got {arm[:40]!r}")
    for one in experiment.orderings:
        if any(one.measure not in numbers for own in there.values() for numbers in own.values()):
            raise UserError(f"{path} must have a column {one.measure}")
    if not experiment.orderings:
        print("no paper orders these arms")
        return
    found = {
        arm.name: {s: n for s, n in there.get(arm.name, {}).items() if s in experiment.seeds}
        for arm in experiment.arms
    }
    count: Counter[str] = Counter()
    for claim, measure, pairs in compare(experiment, found):
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
