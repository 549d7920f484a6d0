"""The page of an experiment: one HTML file that loads nothing from elsewhere; and its table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup

from experiments.config import ExperimentConfig
from experiments.fitting import METRICS
from experiments.summary import Cell, Pair, Row, Summary
from experiments.task import Measure
from experiments.trial import Trial
from training.compare.line_charts import Line, draw_lines
from training.reports.html import Column, Table, around, page, table_of

__all__ = ["render", "table"]


def render(experiment: ExperimentConfig, summary: Summary, command: str, parts: Sequence[Trial],
           missing: Sequence[str], failed: Sequence[str] = ()) -> str:  # fmt: skip
    """The page as text; its words are in `page.html`, beside this file.

    Args:
        experiment: what is compared.
        summary: what the results come to.
        command: what makes it, as a shell takes it.
        parts: all trials.
        missing: what is not done yet, in words.
        failed: what of it was tried, and why it failed.
    """
    return page(
        Path(__file__).with_suffix(".html"),
        title=experiment.title,
        experiment=experiment,
        command=command,
        missing=missing,
        failed=failed,
        results=_results(experiment, summary),
        claims=_claims(summary),
        charts=_charts(experiment, parts),
        commits=summary.commits,
        machines=summary.machines,
    )


def table(summary: Summary) -> str:
    """Every number of every model as CSV: arm, seed, seconds and the measures."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    names = [measure.name for measure in summary.measures]
    writer.writerow(["arm", "seed", *names])
    for row in summary.rows:
        for place, seed in enumerate(row.seeds):
            values = (row.cells[name].values[place] for name in names)
            cells = (f"{v:.10g}" if math.isfinite(v) else "" for v in values)
            writer.writerow([row.variant.name, seed, *cells])
    return text.getvalue()


def _results(experiment: ExperimentConfig, summary: Summary) -> Table | None:
    if not summary.rows:
        return None
    first = summary.measures[0]
    columns: list[Column] = [("arm", "", _name), ("seeds", "", lambda row: len(row.seeds))]
    for measure in summary.measures:
        columns.append((measure.label, measure.unit, _shown(measure)))
        if any(row.cells[measure.name].published is not None for row in summary.rows):
            columns.append((measure.label, "published", _published(measure)))
    columns += [
        (f"minus {experiment.baseline}'s", first.label, lambda row: _cell(row.difference, first)),
        ("time", "seconds a model", lambda row: f"{row.seconds:.0f}"),
    ]
    return table_of(columns, summary.rows)


def _name(row: Row) -> str:
    return f"{row.variant.name} (control)" if row.variant.control else row.variant.name


def _shown(measure: Measure) -> Callable[[Row], str | Markup]:
    return lambda row: _cell(row.cells[measure.name], measure)


def _published(measure: Measure) -> Callable[[Row], str]:
    def shown(row: Row) -> str:
        value = row.cells[measure.name].published
        return "" if value is None else format(value, measure.form)

    return shown


def _cell(cell: Cell | None, measure: Measure) -> str | Markup:
    """A mean and its interval; how many models came to no number."""
    if cell is None:
        return ""
    alike = len(set(cell.finite)) == 1
    text = around(cell.mean, None if alike else cell.interval, measure.form)
    if cell.without:
        return Markup("{} <small>{}</small>").format(text, cell.without)
    return text


def _difference(measure: Measure, pair: Pair) -> str | Markup:
    return _cell(pair.difference, measure)


def _claims(summary: Summary) -> list[tuple[str, Table]]:
    found = []
    for claim, measure, pairs in summary.claims:
        columns: list[Column] = [
            ("better by the claim", "", lambda pair: pair.better),
            ("worse", "", lambda pair: pair.worse),
            ("better by", measure.label, partial(_difference, measure)),
            ("seeds", "", lambda pair: len(pair.difference.values)),
            ("here", "", lambda pair: pair.verdict),
        ]
        found.append((claim, table_of(columns, pairs)))
    return found


def _charts(experiment: ExperimentConfig, parts: Sequence[Trial]) -> list[str]:
    """Curves of what is measured while models learn, mean and range over seeds."""
    runs: dict[str, list[list[dict[str, float]]]] = {}
    for trial in parts:
        path = trial.directory / METRICS
        if trial.path.is_file() and path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
            runs.setdefault(trial.variant.name, []).append(rows)
    keys = {key for own in runs.values() for rows in own for row in rows for key in row}
    baseline = experiment.baseline
    return [
        draw_lines(_lines(experiment, runs, key), f"{key} while learning", "step", key, baseline)
        for key in sorted(keys - {"step", "wall_s"})
    ]


def _lines(
    experiment: ExperimentConfig, runs: Mapping[str, list[list[dict[str, float]]]], key: str
) -> list[Line]:
    """Each arm's curve, as far as all of its seeds have it."""
    lines = []
    for number, arm in enumerate(experiment.arms):
        own = runs.get(arm.name, [])
        length = min((len(rows) for rows in own), default=0)
        if length:
            x = np.array([row["step"] for row in own[0][:length]])
            y = np.array([[row[key] for row in rows[:length]] for rows in own])
            lines.append(Line(number, arm.name, x, y.mean(0), y.min(0), y.max(0)))
    return lines
