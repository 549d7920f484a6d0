"""The page of an experiment: one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from markupsafe import Markup

from experiments.config import ExperimentConfig
from experiments.results import Cell, Curves, Pair, Row, Summary
from experiments.task import Measure
from training.reports.figures import Bar, Line, draw_bars, draw_lines
from training.reports.html import (
    Column,
    Section,
    Table,
    around,
    bullets,
    charts,
    note,
    page,
    pre,
    sections_of_state,
    table_of,
)

__all__ = ["render"]


def render(experiment: ExperimentConfig, summary: Summary, command: str,
           missing: Sequence[str], failed: Sequence[str] = ()) -> str:  # fmt: skip
    """The page as text.

    Args:
        experiment: its configuration.
        summary: summary of the results.
        command: shell command that runs it.
        missing: labels of missing jobs.
        failed: the reason for each failed job.
    """
    unfinished, state = sections_of_state("experiment", missing, failed)
    verdict = [*_verdict(experiment, summary), *unfinished]
    return page(experiment.title, _first(summary), verdict, [
        Section("Results", [
            _results(experiment, summary) or note("Nothing is measured yet."),
            note(
                "Means over seeds; in small print their 95 % intervals by Student's t. Differences "
                "are between models of the same seed. NaN: models whose loss became no finite "
                "number; they are left out of means. FLOPs: floating-point operations, 2 a "
                "multiply-add."
            ),
        ]),
        Section("What the paper claims", _claims(summary)),
        Section("Training", [
            charts(_charts(experiment, summary.curves)),
            note("Means over seeds, and the range between them.") if summary.curves else None,
        ]),
        Section("What differs from the paper", [bullets(experiment.differs)], folded=True),
        *state,
        Section("How to run it again", [
            note(experiment.paper), pre(command),
            note(
                f"Models were trained on {'; '.join(summary.machines)}." if summary.machines
                else None,
                f"Made by commit {', '.join(summary.commits)}." if summary.commits else None,
            ),
        ], folded=True),
    ])  # fmt: skip


def _verdict(experiment: ExperimentConfig, summary: Summary) -> list[str]:
    """The best variant beside the baseline, and how many of the paper's claims hold."""
    measure, lines = summary.measures[0], []
    rows = [row for row in summary.rows if row.cells[measure.name].mean is not None]
    sign = 1.0 if measure.higher_is_better else -1.0

    def said(row: Row) -> str:
        cell = row.cells[measure.name]
        mean, around_it = format(cell.mean, measure.form), ""
        if cell.interval is not None and len(set(cell.finite)) > 1:
            low, high = (format(end, measure.form) for end in cell.interval)
            around_it = f" (95 % interval {low} to {high})"
        return f"{row.variant.name} with {mean}{around_it}"

    others = [row for row in rows if row.variant.name != experiment.baseline]
    rivals = [row for row in others if not row.variant.control] or others
    if rivals:
        best = max(rivals, key=lambda row: sign * (row.cells[measure.name].mean or 0.0))
        base = [said(row) for row in rows if row.variant.name == experiment.baseline]
        beside = f"; baseline: {base[0]}" if base else ""
        unit = f" ({measure.unit})" if measure.unit else ""
        lines.append(f"Best {measure.label}{unit}: {said(best)}{beside}.")
    verdicts = [pair.verdict for *_, pairs in summary.claims for pair in pairs]
    if verdicts:
        counts = ", ".join(
            f"{verdicts.count(one)} {words}"
            for one, words in (
                ("holds", "hold"), ("the other way", "come out the other way"),
                ("not told apart", "are not told apart"),
            )
        )  # fmt: skip
        lines.append(f"Of {len(verdicts)} pairs that the papers order, {counts}.")
    return lines


def _first(summary: Summary) -> str | None:
    """The first measure of every variant, with intervals."""
    measure = summary.measures[0]
    bars = []
    for row in summary.rows:
        cell = row.cells[measure.name]
        if cell.mean is not None:
            low, high = cell.interval or (cell.mean, cell.mean)
            bars.append(Bar(_name(row), cell.mean, low, high))
    unit = f" ({measure.unit})" if measure.unit else ""
    label = f"{measure.label}{unit}, mean and 95 % interval over seeds"
    return draw_bars(bars, f"{measure.label} of each variant", label, {}) if bars else None


def _results(experiment: ExperimentConfig, summary: Summary) -> Table | None:
    if not summary.rows:
        return None
    first = summary.measures[0]
    columns: list[Column] = [("variant", "", _name), ("seeds", "", lambda row: len(row.seeds))]
    for measure in summary.measures:
        columns.append((measure.label, measure.unit, _shown(measure)))
        if any(row.cells[measure.name].published is not None for row in summary.rows):
            columns.append((measure.label, "published", _published(measure)))
    columns += [
        (f"minus {experiment.baseline}'s", first.label, lambda row: _cell(row.difference, first)),
        ("time", "seconds a model",
         lambda row: "" if row.seconds is None else f"{row.seconds:.0f}"),
    ]  # fmt: skip
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
    """A mean and its interval, and the number of models without a finite value."""
    if cell is None:
        return ""
    alike = len(set(cell.finite)) == 1
    text = around(cell.mean, None if alike else cell.interval, measure.form)
    if cell.without:
        return Markup("{} <small>{}</small>").format(text, cell.without)
    return text


def _difference(measure: Measure, pair: Pair) -> str | Markup:
    return _cell(pair.difference, measure)


def _claims(summary: Summary) -> list[Markup | Table | None]:
    found: list[Markup | Table | None] = []
    for claim, measure, pairs in summary.claims:
        columns: list[Column] = [
            ("better by the claim", "", lambda pair: pair.better),
            ("worse", "", lambda pair: pair.worse),
            ("better by", measure.label, partial(_difference, measure)),
            ("seeds", "", lambda pair: len(pair.difference.values)),
            ("here", "", lambda pair: pair.verdict),
        ]
        found += [Markup("<p>{}</p>").format(claim), table_of(columns, pairs)]
    if found:
        found.append(note(
            "A claim holds where the interval of the difference is above zero, and no model came "
            "to NaN."
        ))  # fmt: skip
    return found


def _charts(experiment: ExperimentConfig, curves: Curves) -> list[str]:
    """Training curves, mean and range over seeds."""
    drawn = []
    for key, own in sorted(curves.items()):
        lines = []
        for number, variant in enumerate(experiment.arms):
            if variant.name in own:
                x, mean, low, high = np.array(own[variant.name]).T
                lines.append(Line(number, variant.name, x, mean, low, high))
        if lines:
            title = f"{key} while learning"
            drawn.append(draw_lines(lines, title, "step", key, experiment.baseline))
    return drawn
