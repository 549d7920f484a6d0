"""The record of an experiment: the numbers of its models, their training curves, and provenance."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from experiments.results import Curves, Models, Results, Summary
from training.command.files import read_bytes, write_atomically
from training.compare.record import compressed, decompressed
from training.io.config import UserError
from training.io.state_files import Finite, State, read_json

__all__ = ["CURVES", "FACTS", "TABLE", "read_record", "read_table", "table", "write_record"]

TABLE, FACTS, CURVES = "table.csv", "facts.json", "curves.csv.xz"
_COLUMNS = ("measure", "arm", "step", "mean", "low", "high")


@dataclass(frozen=True, config=State)
class Facts:
    """The parts of a record that are not in the tables."""

    seconds: dict[str, Finite]
    """Of a model of each variant, on average."""
    commits: tuple[str, ...]
    machines: tuple[str, ...]


def write_record(record: Path, results: Results, summary: Summary) -> None:
    """Write all files of a record except its page."""
    facts = {
        "seconds": results.seconds, "commits": results.commits, "machines": results.machines,
    }  # fmt: skip
    write_atomically(record / TABLE, table(summary).encode())
    write_atomically(record / FACTS, (json.dumps(facts, indent=1) + "\n").encode())
    if results.curves:
        rows = [
            (key, name, *(f"{value:.5g}" for value in point))
            for key, own in sorted(results.curves.items())
            for name, points in own.items()
            for point in points
        ]
        write_atomically(record / CURVES, compressed(_csv([_COLUMNS, *rows])))


def read_record(record: Path) -> Results:
    """The results in a record. Raises UserError if a file is damaged."""
    facts = Facts({}, (), ())
    if (record / FACTS).is_file():
        facts = read_json(Facts, record / FACTS)
    curves = _read_curves(record / CURVES) if (record / CURVES).is_file() else {}
    models = read_table(record / TABLE)
    return Results(models, facts.seconds, facts.commits, facts.machines, curves)


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


def _csv(rows: list[tuple[Any, ...]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def table(summary: Summary) -> str:
    """Every number of every model as CSV: variant (`variant`), seed and the measures."""
    names = [measure.name for measure in summary.measures]
    rows: list[tuple[Any, ...]] = [("arm", "seed", *names)]
    for row in summary.rows:
        for place, seed in enumerate(row.seeds):
            values = (row.cells[name].values[place] for name in names)
            cells = (f"{v:.10g}" if math.isfinite(v) else "" for v in values)
            rows.append((row.variant.name, seed, *cells))
    return _csv(rows)


def read_table(path: Path) -> dict[str, Models]:
    """The models' results by variant, from a table written by `table`.

    UserError: if it is not such a table.
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
