"""The page of an experiment: one HTML file that loads nothing from elsewhere."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from experiments.config import VariantConfig
from experiments.results import Results
from training.compare.measures import Cell, Measure
from training.reports.figures import Bar, Line, draw_bars, draw_lines
from training.reports.html import (
    Section,
    Table,
    around,
    bullets,
    charts,
    note,
    page,
    pre,
    sections_of_state,
)


def render(
    results: Results, command: str, missing: Sequence[str], failed: Sequence[str] = ()
) -> str:
    """The page as text.

    Args:
        results: the results of the experiment.
        command: shell command that runs it.
        missing: labels of missing jobs.
        failed: the reason for each failed job.
    """
    experiment, facts = results.experiment, results.facts
    unfinished, state = sections_of_state("experiment", missing, failed)
    return page(experiment.title, _first(results), [*_verdict(results), *unfinished], [
        Section("Results", [
            _results(results) or note("Nothing is measured yet."),
            note(
                "Means over seeds; in small print their 95 % intervals by Student's t. Differences "
                "are between models of the same seed. NaN: models whose loss became no finite "
                "number; they are left out of means. FLOPs: floating-point operations, 2 a "
                "multiply-add."
            ),
        ]),
        Section("What the paper claims", _claims(results)),
        Section("Training", [
            charts(_charts(results)),
            note("Means over seeds, and the range between them.") if results.curves else None,
        ]),
        Section("What differs from the paper", [bullets(experiment.differs)], folded=True),
        *state,
        Section("How to run it again", [
            note(experiment.paper), pre(command),
            note(
                f"Models were trained on {'; '.join(facts.machines)}." if facts.machines else None,
                f"Made by commit {', '.join(facts.commits)}." if facts.commits else None,
            ),
        ], folded=True),
    ])  # fmt: skip


def _verdict(results: Results) -> list[str]:
    """The best variant beside the baseline, and how many of the paper's claims hold."""
    measure, baseline, lines = results.measures[0], results.experiment.baseline, []
    means = {
        variant.name: mean
        for variant in results.variants
        if (mean := results.cell(variant.name, measure.name).mean) is not None
    }

    def described(name: str) -> str:
        cell, ends = results.cell(name, measure.name), ""
        if cell.interval is not None and len(set(cell.finite)) > 1:
            low, high = (format(end, measure.form) for end in cell.interval)
            ends = f" (95 % interval {low} to {high})"
        return f"{name} with {format(means[name], measure.form)}{ends}"

    others = [name for name in means if name != baseline]
    rivals = [name for name in others if not results.experiment.variant(name).control] or others
    if rivals:
        best = (max if measure.higher_is_better else min)(rivals, key=means.__getitem__)
        beside = f"; baseline: {described(baseline)}" if baseline in means else ""
        lines.append(f"Best {measure.label}{_unit(measure)}: {described(best)}{beside}.")
    verdicts = [cell.verdict for *_, pairs in results.claims() for *_, cell in pairs]
    if verdicts:
        holds, other, alike = (
            verdicts.count(one) for one in ("holds", "the other way", "not told apart")
        )
        lines.append(
            f"Of {len(verdicts)} pairs that the papers order, {holds} hold, {other} come out the "
            f"other way, {alike} are not told apart."
        )
    return lines


def _unit(measure: Measure) -> str:
    return f" ({measure.unit})" if measure.unit else ""


def _first(results: Results) -> str | None:
    """The first measure of every variant, with intervals."""
    measure, bars = results.measures[0], []
    for variant in results.variants:
        cell = results.cell(variant.name, measure.name)
        if cell.mean is not None:
            bars.append(Bar(_name(variant), cell.mean, *(cell.interval or (cell.mean, cell.mean))))
    label = f"{measure.label}{_unit(measure)}, mean and 95 % interval over seeds"
    return draw_bars(bars, f"{measure.label} of each variant", label, {}) if bars else None


def _results(results: Results) -> Table | None:
    variants, baseline, first = results.variants, results.experiment.baseline, results.measures[0]
    if not variants:
        return None
    head = [("variant", ""), ("seeds", "")]
    columns: list[list[Any]] = [
        [_name(variant) for variant in variants],
        [len(results.models[variant.name]) for variant in variants],
    ]
    for measure in results.measures:
        head.append((measure.label, measure.unit))
        columns.append([_cell(results.cell(one.name, measure.name), measure) for one in variants])
        known = [variant.published.get(measure.name) for variant in variants]
        if any(value is not None for value in known):
            head.append((measure.label, "published"))
            columns.append([around(v, None, measure.form) if v is not None else "" for v in known])
    head += [(f"minus {baseline}'s", first.label), ("time", "seconds a model")]
    differences = [results.difference(variant.name, baseline, first.name) for variant in variants]
    columns.append([
        "" if variant.name == baseline else _cell(difference, first)
        for variant, difference in zip(variants, differences, strict=True)
    ])  # fmt: skip
    seconds = [results.facts.seconds.get(variant.name) for variant in variants]
    columns.append(["" if value is None else f"{value:.0f}" for value in seconds])
    return Table(head, [*zip(*columns, strict=True)])


def _name(variant: VariantConfig) -> str:
    return f"{variant.name} (control)" if variant.control else variant.name


def _cell(cell: Cell, measure: Measure) -> str | Markup:
    """A mean and its interval, and the number of models without a finite value."""
    alike = len(set(cell.finite)) == 1
    text = around(cell.mean, None if alike else cell.interval, measure.form)
    return Markup("{} <small>{}</small>").format(text, cell.without) if cell.without else text


def _claims(results: Results) -> list[Any]:
    found: list[Any] = []
    for claim, measure, pairs in results.claims():
        head = [
            ("better by the claim", ""), ("worse", ""), ("better by", measure.label), ("seeds", ""),
            ("here", ""),
        ]  # fmt: skip
        rows = [
            (better, worse, _cell(cell, measure), len(cell.values), cell.verdict)
            for better, worse, cell in pairs
        ]
        found += [Markup("<p>{}</p>").format(claim), Table(head, rows)]
    if found:
        found.append(note(
            "A claim holds where the interval of the difference is above zero, and no model came "
            "to NaN."
        ))  # fmt: skip
    return found


def _charts(results: Results) -> list[str]:
    """Training curves, mean and range over seeds."""
    drawn = []
    for key, own in sorted(results.curves.items()):
        lines = [
            Line(number, variant.name, *np.array(own[variant.name]).T)
            for number, variant in enumerate(results.experiment.arms)
            if variant.name in own
        ]
        if lines:
            title, baseline = f"{key} while learning", results.experiment.baseline
            drawn.append(draw_lines(lines, title, "step", key, baseline))
    return drawn
