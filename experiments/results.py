"""Summary of an experiment's results: means, differences between variants, claims."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from experiments.config import ExperimentConfig, VariantConfig
from experiments.fitting import METRICS
from experiments.registry import task
from experiments.task import Measure
from experiments.trial import Result, Trial
from training.analysis.intervals import Interval, seeds_interval

__all__ = [
    "Cell", "Claims", "Curves", "Models", "Pair", "Results", "Row", "Summary", "compare",
    "of_trials", "summarise",
]  # fmt: skip

Models = Mapping[int, Mapping[str, float | None]]
"""What a variant's models came to, by seed and measure."""


Point = tuple[float, float, float, float]
"""Of a curve of training: step, mean over seeds, smallest and largest value."""
Curves = Mapping[str, Mapping[str, tuple[Point, ...]]]
"""By measure and variant."""


@dataclass(frozen=True)
class Results:
    """The results of trials or of their record."""

    models: Mapping[str, Models]
    """By variant."""
    seconds: Mapping[str, float]
    """Of a model of each variant, on average."""
    commits: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    curves: Curves = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A measure of a variant over its seeds."""

    values: tuple[float, ...]
    """By seed; NaN where the model came to none."""
    published: float | None = None
    """The paper's figure."""

    @property
    def finite(self) -> np.ndarray:
        """The finite values."""
        found = np.array(self.values)
        return found[np.isfinite(found)]

    @property
    def without(self) -> str:
        """The number of values that are not finite in words; empty if there are none."""
        none = len(self.values) - len(self.finite)
        return f"NaN in {none} of {len(self.values)}" if none else ""

    @property
    def mean(self) -> float | None:
        """Mean of the finite values; None if there are none."""
        return float(self.finite.mean()) if len(self.finite) else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean, over seeds."""
        return seeds_interval(self.finite)


@dataclass(frozen=True)
class Row:
    """A variant."""

    variant: VariantConfig
    seeds: tuple[int, ...]
    """Those that are done."""
    cells: Mapping[str, Cell]
    """By measure."""
    seconds: float | None
    """Of a model, on average; None if it is not known."""
    difference: Cell | None = None
    """Of the first measure, from the baseline's of the same seed; None of the baseline."""


@dataclass(frozen=True)
class Pair:
    """Two variants that a paper orders."""

    better: str
    worse: str
    difference: Cell
    """By how much the one is better, by common seeds; negative where it is worse."""

    @property
    def verdict(self) -> str:
        """The conclusion from the interval, if all models have finite values."""
        if self.difference.without:
            return self.difference.without
        interval = self.difference.interval
        if interval is None:
            return "too few seeds"
        low, high = interval
        return "holds" if low > 0 else "the other way" if high < 0 else "not told apart"


Claims = tuple[tuple[str, Measure, tuple[Pair, ...]], ...]
"""Each claim in words, of which measure, and its neighbours."""


@dataclass(frozen=True)
class Summary:
    """All of it."""

    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    """Variants with at least one result, in their order."""
    claims: Claims
    commits: tuple[str, ...]
    """Of the code that made the results."""
    machines: tuple[str, ...]
    """What models were trained on: GPUs, or processors."""
    curves: Curves
    """Of training."""


def of_trials(experiment: ExperimentConfig, parts: Sequence[Trial]) -> Results:
    """The results of the trials that are done. Raises UserError if a file is damaged."""
    results_of = ((trial, trial.result()) for trial in parts)
    there = [(trial, result) for trial, result in results_of if result is not None]
    models: dict[str, dict[int, Mapping[str, float | None]]] = {}
    seconds: dict[str, list[float]] = {}
    for trial, result in there:
        models.setdefault(trial.variant.name, {})[trial.seed] = result.numbers
        seconds.setdefault(trial.variant.name, []).append(result.seconds)
    commits = {str((r.provenance.get("git") or {}).get("commit", "")) for _, r in there}
    machines = {_machine(result) for _, result in there}
    return Results(
        {**models}, {name: float(np.mean(own)) for name, own in seconds.items()},
        tuple(sorted(commits - {""})), tuple(sorted(machines - {""})),
        _curves([trial for trial, _ in there]),
    )  # fmt: skip


def _curves(parts: Sequence[Trial]) -> Curves:
    """Curves of the metrics' columns that all seeds of a variant have."""
    runs: dict[str, list[list[dict[str, float]]]] = {}
    for trial in parts:
        path = trial.directory / METRICS
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
            runs.setdefault(trial.variant.name, []).append(rows)
    found: dict[str, dict[str, tuple[Point, ...]]] = {}
    for name, own in runs.items():
        for together in zip(*own, strict=False):
            for key in together[0].keys() - {"step", "wall_s"}:
                values = np.array([row[key] for row in together])
                low, high = float(values.min()), float(values.max())
                point = (together[0]["step"], float(values.mean()), low, high)
                line = found.setdefault(key, {})
                line[name] = (*line.get(name, ()), point)
    return {**found}


def summarise(experiment: ExperimentConfig, results: Results) -> Summary:
    """The summary of results."""
    measures = task(experiment.task).measures
    found: dict[str, Models] = {
        variant.name: {
            seed: own[seed] for seed in experiment.seeds
            if seed in (own := results.models.get(variant.name, {}))
        }
        for variant in experiment.arms
    }  # fmt: skip
    first, base = measures[0], found[experiment.baseline]
    rows = []
    for variant in experiment.arms:
        own = found[variant.name]
        if own:
            cells = {m.name: _cell(own, m.name, variant.published.get(m.name)) for m in measures}
            same = (
                None if variant.name == experiment.baseline else _difference(own, base, first, 1.0)
            )
            seconds = results.seconds.get(variant.name)
            rows.append(Row(variant, tuple(own), cells, seconds, same))
    return Summary(
        measures, tuple(rows), compare(experiment, found), results.commits, results.machines,
        results.curves,
    )  # fmt: skip


def compare(experiment: ExperimentConfig, found: Mapping[str, Models]) -> Claims:
    """The differences in the papers' claimed orders.

    Args:
        experiment: whose orders.
        found: the finished results of every variant.
    """
    by_name = {measure.name: measure for measure in task(experiment.task).measures}
    claims = []
    for one in experiment.orderings:
        measure = by_name[one.measure]
        sign = 1.0 if measure.higher_is_better else -1.0
        pairs = tuple(
            Pair(a, b, _difference(found[a], found[b], measure, sign))
            for a, b in pairwise(one.arms)
        )
        claims.append((one.claim, measure, pairs))
    return tuple(claims)


def _machine(result: Result) -> str:
    device = result.provenance.get("device", "cpu")
    if device == "cpu":
        device = (result.provenance.get("hardware") or {}).get("cpu") or ""
    return str(device)


def _number(numbers: Mapping[str, float | None], measure: str) -> float:
    value = numbers.get(measure)
    return math.nan if value is None else value


def _cell(own: Models, measure: str, published: float | None) -> Cell:
    return Cell(tuple(_number(numbers, measure) for numbers in own.values()), published)


def _difference(ours: Models, theirs: Models, measure: Measure, sign: float) -> Cell:
    both = [seed for seed in ours if seed in theirs]
    values = (_number(ours[s], measure.name) - _number(theirs[s], measure.name) for s in both)
    return Cell(tuple(sign * value for value in values))
