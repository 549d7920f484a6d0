"""Checks the papers' ranking claims against the numbers of a `table.csv`, without any model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.config import ExperimentConfig
from experiments.record import TABLE, read_table
from experiments.results import Pair, compare
from experiments.task import Measure
from training.io.config import UserError

__all__ = ["print_claims"]


def print_claims(experiment: ExperimentConfig, path: Path, known: Sequence[str]) -> None:
    """Print every pair that a paper ranks, the difference and the verdict, and count the verdicts.

    Args:
        experiment: whose claims, variants and seeds.
        path: its table, or the directory with it.
        known: all variants that the table may have, a superset of the experiment's.

    Raises:
        UserError: if there is no table, or it belongs to another experiment.
    """
    path = path / TABLE if path.is_dir() else path
    there = read_table(path)
    for variant in there:
        if variant not in known:
            raise UserError(f"{path}: variants must be of {', '.join(known)}, got {variant[:40]!r}")
    for one in experiment.orderings:
        if any(one.measure not in numbers for own in there.values() for numbers in own.values()):
            raise UserError(f"{path} must have a column {one.measure}")
    if not experiment.orderings:
        print("no paper ranks these variants")
        return
    found = {
        variant.name: {
            s: n for s, n in there.get(variant.name, {}).items() if s in experiment.seeds
        }
        for variant in experiment.arms
    }
    count: Counter[str] = Counter()
    for claim, measure, pairs in compare(experiment, found):
        print(claim)
        for pair in pairs:
            count[pair.verdict] += 1
            print(
                f"  {pair.verdict}: {pair.better} before {pair.worse}, by {_shown(pair, measure)}"
            )
    print(", ".join(f"{verdict}: {number}" for verdict, number in sorted(count.items())))


def _shown(pair: Pair, measure: Measure) -> str:
    mean, interval = pair.difference.mean, pair.difference.interval
    told = "no number" if mean is None else format(mean, measure.form)
    if interval is None:
        return told
    low, high = (format(end, measure.form) for end in interval)
    return f"{told} ({low} to {high})"
