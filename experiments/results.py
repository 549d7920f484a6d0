"""Results of an experiment: means, differences, claims, and the record that holds them.

A record has every number of every model in table.csv, training curves in curves.csv.xz, and
provenance in facts.json.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass as checked_dataclass

from experiments.config import ExperimentConfig, VariantConfig, task
from experiments.task import Measure
from training.analysis.intervals import Interval, seeds_interval
from training.command.files import read_bytes, write_atomically, write_json
from training.compare.record import compressed, decompressed
from training.io.config import UserError
from training.io.state_files import Finite, State, read_json

TABLE, FACTS, CURVES = "table.csv", "facts.json", "curves.csv.xz"
_COLUMNS = ("measure", "arm", "step", "mean", "low", "high")

Models = Mapping[int, Mapping[str, float | None]]
"""A variant's measures by seed and name; None: not a number."""
Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float, float, float]]]]
"""Training curves by measure and variant: step, mean over seeds, smallest and largest value."""


@checked_dataclass(frozen=True, config=State)
class Facts:
    """The parts of a record that are not in the tables."""

    seconds: dict[str, Finite] = field(default_factory=dict)
    """Time of a model of each variant, on average."""
    commits: tuple[str, ...] = ()
    """Commits of the code that made the results."""
    machines: tuple[str, ...] = ()
    """GPUs or processors that models were trained on."""


class Cell(NamedTuple):
    """A measure of a variant, or a difference between two, over seeds."""

    values: tuple[float, ...]
    """Values by seed; NaN where a model has no number."""

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

    @property
    def verdict(self) -> str:
        """The verdict of a difference on a claim; `without` unless all values are finite."""
        if self.without:
            return self.without
        if self.interval is None:
            return "too few seeds"
        low, high = self.interval
        return "holds" if low > 0 else "the other way" if high < 0 else "not told apart"


Pair = tuple[str, str, Cell]
"""Two variants that a paper ranks, the better one first, and by how much it is better."""


@dataclass(frozen=True)
class Results:
    """The results of an experiment's models, or of their record."""

    experiment: ExperimentConfig
    models: Mapping[str, Models]
    """Trained models by variant."""
    facts: Facts
    curves: Curves

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures of the experiment's task."""
        return task(self.experiment.task).measures

    @property
    def variants(self) -> list[VariantConfig]:
        """Variants with at least one result, in their order."""
        return [variant for variant in self.experiment.arms if self.seeds(variant.name)]

    def seeds(self, variant: str) -> list[int]:
        """The experiment's seeds with a result of a variant."""
        return [seed for seed in self.experiment.seeds if seed in self.models.get(variant, {})]

    def _values(self, variant: str, measure: Measure) -> dict[int, float]:
        found = {s: self.models[variant][s].get(measure.name) for s in self.seeds(variant)}
        return {seed: math.nan if value is None else value for seed, value in found.items()}

    def cell(self, variant: str, measure: Measure) -> Cell:
        """A measure of a variant."""
        return Cell(tuple(self._values(variant, measure).values()))

    def difference(self, ours: str, theirs: str, measure: Measure, sign: float = 1.0) -> Cell:
        """The sign times the difference between two variants, over their common seeds."""
        own, other = self._values(ours, measure), self._values(theirs, measure)
        return Cell(tuple(sign * (own[seed] - other[seed]) for seed in own if seed in other))

    def claims(self) -> Iterator[tuple[str, Measure, list[Pair]]]:
        """Each claim of a paper in words, its measure, and the neighbours that it ranks."""
        for one in self.experiment.orderings:
            measure = next(m for m in self.measures if m.name == one.measure)
            sign = 1.0 if measure.higher_is_better else -1.0
            yield (
                one.claim,
                measure,
                [(a, b, self.difference(a, b, measure, sign)) for a, b in pairwise(one.arms)],
            )

    def table(self) -> str:
        """Every number of every model as CSV: variant (`arm`), seed and the measures."""
        rows: list[Iterable[Any]] = [("arm", "seed", *(measure.name for measure in self.measures))]
        for variant in self.variants:
            columns = (self.cell(variant.name, measure).values for measure in self.measures)
            for seed, *values in zip(self.seeds(variant.name), *columns, strict=True):
                cells = (f"{v:.10g}" if math.isfinite(v) else "" for v in values)
                rows.append((variant.name, seed, *cells))
        return _csv(rows)

    def write_record(self, record: Path) -> None:
        """Write all files of a record except its page."""
        write_atomically(record / TABLE, self.table().encode())
        write_json(record / FACTS, asdict(self.facts))
        if self.curves:
            rows = [
                (key, name, *(f"{value:.5g}" for value in point))
                for key, own in sorted(self.curves.items())
                for name, points in own.items()
                for point in points
            ]
            write_atomically(record / CURVES, compressed(_csv([_COLUMNS, *rows])))


def read_record(experiment: ExperimentConfig, record: Path) -> Results:
    """The results in a record. Raises UserError if a file is damaged."""
    facts = read_json(Facts, record / FACTS) if (record / FACTS).is_file() else Facts()
    curves = _read_curves(record / CURVES) if (record / CURVES).is_file() else {}
    return Results(experiment, read_table(record / TABLE), facts, curves)


def _read_curves(path: Path) -> Curves:
    found: dict[str, dict[str, Any]] = {}
    try:
        head, *rows = csv.reader(io.StringIO(decompressed(path), newline=""))
        if tuple(head) != _COLUMNS:
            raise ValueError(f"its columns must be {', '.join(_COLUMNS)}")
        for key, name, *numbers in rows:
            step, mean, low, high = map(_finite, numbers)
            found.setdefault(key, {}).setdefault(name, []).append((step, mean, low, high))
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return found


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_table(path: Path) -> dict[str, Models]:
    """The models' results by variant, from a file that `Results.table` gave.

    Raises UserError if it is not such a table.
    """
    try:
        rows = [*csv.DictReader(io.StringIO(read_bytes(path).decode(), newline=""))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} must be an experiment's table.csv: {error}") from None
    found: dict[str, dict[int, Mapping[str, float | None]]] = {}
    for row in rows:
        variant, seed = row.pop("arm", None), row.pop("seed", None)
        if variant is None or seed is None:
            raise UserError(
                f"{path} must be an experiment's table.csv: a row has a variant and a seed, "
                f"got {str(variant)[:40]!r}, {str(seed)[:40]!r}"
            )
        try:
            numbers = {name: _finite(value) if value else None for name, value in row.items()}
            models, number = found.setdefault(variant, {}), int(seed)
        except (TypeError, ValueError):
            raise UserError(
                f"{path}: variant {variant[:40]}, seed {seed[:40]}: a value is no number"
            ) from None
        if number in models:
            raise UserError(f"{path}: variant {variant[:40]} has seed {number} twice")
        models[number] = numbers
    return {**found}


def _finite(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def print_claims(experiment: ExperimentConfig, path: Path, known: Sequence[str]) -> None:
    """Print every pair that a paper ranks, the difference and the verdict, and count the verdicts.

    Args:
        experiment: its claims, variants and seeds.
        path: its table, or the directory with it.
        known: all variants that the table may have, a superset of the experiment's.

    Raises:
        UserError: if there is no table, or it belongs to another experiment.
    """
    path = path / TABLE if path.is_dir() else path
    models = read_table(path)
    for variant in models:
        if variant not in known:
            raise UserError(f"{path}: variants must be of {', '.join(known)}, got {variant[:40]!r}")
    for one in experiment.orderings:
        if any(one.measure not in numbers for own in models.values() for numbers in own.values()):
            raise UserError(f"{path} must have a column {one.measure}")
    if not experiment.orderings:
        print("no paper ranks these variants")
        return
    verdicts: Counter[str] = Counter()
    for claim, measure, pairs in Results(experiment, models, Facts(), {}).claims():
        print(claim)
        for better, worse, difference in pairs:
            verdicts[difference.verdict] += 1
            mean, ends = difference.mean, difference.interval or ()
            shown = "no number" if mean is None else format(mean, measure.form)
            between = f" ({' to '.join(format(end, measure.form) for end in ends)})" if ends else ""
            print(f"  {difference.verdict}: {better} before {worse}, by {shown}{between}")
    print(", ".join(f"{verdict}: {number}" for verdict, number in sorted(verdicts.items())))
