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
from typing import Any, Self

from pydantic.dataclasses import dataclass as checked_dataclass

from experiments.config import ExperimentConfig, VariantConfig, task
from training.command.files import read_bytes, write_atomically, write_json
from training.compare.measures import Cell, Measure, ResultsTable
from training.compare.record import compressed, csv_text, decompressed
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


Pair = tuple[str, str, Cell]
"""Two variants that a paper ranks, the better one first, and by how much it is better."""


@dataclass(frozen=True)
class Results(ResultsTable):
    """The results of an experiment's models, or of their record."""

    experiment: ExperimentConfig
    facts: Facts = field(default_factory=Facts)
    curves: Curves = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: ExperimentConfig, models: Mapping[str, Models], *more: Any) -> Self:
        """Those of the experiment's variants and seeds among some models, in their order."""
        found = {
            one.name: {seed: own[seed] for seed in experiment.seeds if seed in own}
            for one in experiment.arms
            if (own := models.get(one.name)) is not None
        }
        return cls(found, experiment, *more)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures of the experiment's task."""
        return task(self.experiment.task).measures

    @property
    def variants(self) -> list[VariantConfig]:
        """Variants with at least one result, in their order."""
        return [variant for variant in self.experiment.arms if self.models.get(variant.name)]

    def claims(self) -> Iterator[tuple[str, Measure, list[Pair]]]:
        """Each claim of a paper in words, its measure, and the neighbours that it ranks."""
        for one in self.experiment.orderings:
            measure = next(m for m in self.measures if m.name == one.measure)
            sign = 1.0 if measure.higher_is_better else -1.0
            yield (
                one.claim,
                measure,
                [(a, b, self.difference(a, b, one.measure, sign)) for a, b in pairwise(one.arms)],
            )

    def table(self) -> str:
        """Every number of every model as CSV: variant (`arm`), seed and the measures."""
        rows: list[Iterable[Any]] = [("arm", "seed", *(measure.name for measure in self.measures))]
        for name, own in self.models.items():
            for seed, numbers in own.items():
                values = (numbers.get(measure.name) for measure in self.measures)
                rows.append((name, seed, *("" if v is None else f"{v:.10g}" for v in values)))
        return csv_text(rows)

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
            write_atomically(record / CURVES, compressed(csv_text([_COLUMNS, *rows])))


def read_record(experiment: ExperimentConfig, record: Path) -> Results:
    """The results in a record. Raises UserError if a file is damaged."""
    facts = read_json(Facts, record / FACTS) if (record / FACTS).is_file() else Facts()
    curves = _read_curves(record / CURVES) if (record / CURVES).is_file() else {}
    return Results.of(experiment, read_table(record / TABLE), facts, curves)


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
    for claim, measure, pairs in Results.of(experiment, models).claims():
        print(claim)
        for better, worse, difference in pairs:
            verdicts[difference.verdict] += 1
            mean, ends = difference.mean, difference.interval or ()
            shown = "no number" if mean is None else format(mean, measure.form)
            between = f" ({' to '.join(format(end, measure.form) for end in ends)})" if ends else ""
            print(f"  {difference.verdict}: {better} before {worse}, by {shown}{between}")
    print(", ".join(f"{verdict}: {number}" for verdict, number in sorted(verdicts.items())))
