"""What an experiment's results come to: a table, differences between arms, claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.config import ExperimentConfig, VariantConfig
from experiments.registry import task
from experiments.task import Measure
from experiments.trial import Result, Trial
from training.analysis.intervals import Interval, seeds_interval

__all__ = ["Cell", "Claims", "Models", "Pair", "Row", "Summary", "compare", "summarise"]

Models = Mapping[int, Mapping[str, float | None]]
"""What an arm's models came to, by seed and measure."""


@dataclass(frozen=True)
class Cell:
    """A measure of an arm over its seeds."""

    values: tuple[float, ...]
    """By seed; NaN where the model came to none."""
    published: float | None = None
    """The paper's figure."""

    @property
    def finite(self) -> np.ndarray:
        """Those that are numbers."""
        found = np.array(self.values)
        return found[np.isfinite(found)]

    @property
    def without(self) -> str:
        """How many are none, in words; nothing where all are."""
        none = len(self.values) - len(self.finite)
        return f"NaN in {none} of {len(self.values)}" if none else ""

    @property
    def mean(self) -> float | None:
        """Of those; None without any."""
        return float(self.finite.mean()) if len(self.finite) else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean, over seeds."""
        return seeds_interval(self.finite)


@dataclass(frozen=True)
class Row:
    """An arm."""

    variant: VariantConfig
    seeds: tuple[int, ...]
    """Those that are done."""
    cells: Mapping[str, Cell]
    """By measure."""
    seconds: float
    """Of a model, on average."""
    difference: Cell | None = None
    """Of the first measure, from the baseline's of the same seed; None of the baseline."""


@dataclass(frozen=True)
class Pair:
    """Two arms that a paper orders."""

    better: str
    worse: str
    difference: Cell
    """By how much the one is better, by common seeds; negative where it is worse."""

    @property
    def verdict(self) -> str:
        """What the interval says, where all models came to a number."""
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
    """Arms with at least one result, in their order."""
    claims: Claims
    commits: tuple[str, ...]
    """Of the code that made the results."""
    machines: tuple[str, ...]
    """What models were learned on: GPUs, or processors."""


def summarise(experiment: ExperimentConfig, parts: Sequence[Trial]) -> Summary:
    """From the files of the trials that are done. UserError where one is damaged."""
    measures = task(experiment.task).measures
    results_of = ((t, t.result()) for t in parts)
    there = {(t.variant.name, t.seed): result for t, result in results_of if result is not None}
    results = {arm.name: _of(arm.name, experiment, there) for arm in experiment.arms}
    found: dict[str, Models] = {
        name: {seed: result.numbers for seed, result in own.items()}
        for name, own in results.items()
    }
    first, base = measures[0], found[experiment.baseline]
    rows = []
    for arm in experiment.arms:
        own = found[arm.name]
        if not own:
            continue
        cells = {m.name: _cell(own, m.name, arm.published.get(m.name)) for m in measures}
        same = None if arm.name == experiment.baseline else _difference(own, base, first, 1.0)
        seconds = float(np.mean([result.seconds for result in results[arm.name].values()]))
        rows.append(Row(arm, tuple(own), cells, seconds, same))
    commits = {str((r.provenance.get("git") or {}).get("commit", "")) for r in there.values()}
    machines = {_machine(result) for result in there.values()}
    return Summary(
        measures, tuple(rows), compare(experiment, found), tuple(sorted(commits - {""})),
        tuple(sorted(machines - {""})),
    )  # fmt: skip


def compare(experiment: ExperimentConfig, found: Mapping[str, Models]) -> Claims:
    """What papers order, by how much it is so.

    Args:
        experiment: whose orders.
        found: of every arm, those that are done.
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


def _of(
    arm: str, experiment: ExperimentConfig, there: Mapping[tuple[str, int], Result]
) -> dict[int, Result]:
    return {seed: there[arm, seed] for seed in experiment.seeds if (arm, seed) in there}


def _number(numbers: Mapping[str, float | None], measure: str) -> float:
    value = numbers.get(measure)
    return math.nan if value is None else value


def _cell(own: Models, measure: str, published: float | None) -> Cell:
    return Cell(tuple(_number(numbers, measure) for numbers in own.values()), published)


def _difference(ours: Models, theirs: Models, measure: Measure, sign: float) -> Cell:
    both = [seed for seed in ours if seed in theirs]
    values = (_number(ours[s], measure.name) - _number(theirs[s], measure.name) for s in both)
    return Cell(tuple(sign * value for value in values))
