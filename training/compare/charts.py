"""Which charts a study's page has, and what is drawn in each."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from envs import find_task
from training.collect.outcomes import outcomes_of
from training.compare.config import CurveConfig
from training.compare.results import Results, training_spread
from training.compare.tables import Pairs
from training.reports.figures import (
    MOST_NAMED,
    OVERLAID,
    Bar,
    Line,
    Point,
    draw_bars,
    draw_lines,
    draw_picture,
    draw_points,
)
from training.reports.plots import panels

COST_LABELS = {
    "attention": "attention, FLOPs a step (multiply-add = 2)",
    "total": "whole policy, FLOPs a step (multiply-add = 2)",
}
REWARD_LABEL = "reward per episode"


def training_charts(results: Results, pairs: Pairs | None = None, of: str = "") -> list[str]:
    """A chart for every stage and column of its metrics that has values.

    Args:
        results: of a study.
        pairs: what each line is the mean of; None: every variant, over its seeds.
        of: what the titles say of that.
    """
    study = results.study
    if pairs is None:
        pairs = {name: [(name, seed) for seed in study.seeds] for name in results.names}
    group = next(variant.group for variant in study.arms if variant.name == study.baseline)
    baseline = study.baseline if study.baseline in pairs else group or ""
    charts = []
    task = find_task(results.runs[0].job.env_id) if results.runs else None
    for stage, settings in enumerate(study.stages):
        done = {name: results.finished(name, stage) for name in results.names}
        curves = [[done[n][s] for n, s in each if s in done[n]] for each in pairs.values()]
        for panel in panels(outcomes_of(task)):
            spreads = [training_spread(of_line, panel.column) for of_line in curves]
            named = enumerate(zip(pairs, spreads, strict=True))
            lines = [Line(i, name, *found) for i, (name, found) in named if found is not None]
            if not panel.has_values(line.y for line in lines):
                continue
            if len(lines) > OVERLAID and all(len(line.x) == 1 for line in lines):
                continue  # a panel for every variant, each with a single point
            of_stage = f"stage {stage + 1}: " if len(study.stages) > 1 else ""
            title = f"Training, {of_stage}{panel.meaning}{of}"
            xlabel = f"{of_stage}iteration of training.{settings.trainer}"
            labels = title, xlabel, panel.meaning
            charts.append(draw_lines(lines, *labels, baseline, panel.share))
    return charts


def first_chart(results: Results) -> str | None:
    """What a page opens with: the reward of every variant, by name, against its attention FLOPs;
    of many variants, or without costs, a row each. None before anything is measured."""
    variants = results.variants
    if not variants:
        return None
    points, across = _pareto_points(results, "attention")
    title = "Reward of each variant"
    if 1 < len(points) == len(variants) <= MOST_NAMED:
        named = [replace(point, name=name) for name, point in points.items()]
        return draw_points(named, title, COST_LABELS["attention"], REWARD_LABEL, across)
    rows = [
        Bar(f"{name} (control)" if name in results.study.controls else name,
            row.scores.reward, *row.interval,
            "" if row.cost is None else f"{row.cost['attention'] / 1e6:.3g} M")
        for name, row in variants.items()
    ]  # fmt: skip
    beside = "attention FLOPs" if any(row.beside for row in rows) else ""
    return draw_bars(rows, title, REWARD_LABEL, across, beside)


def pareto_charts(results: Results) -> list[str]:
    """Attention FLOPs and total FLOPs against reward."""
    charts = []
    for kind, xlabel in COST_LABELS.items():
        points, across = _pareto_points(results, kind)
        if points:
            title = f"FLOPs against reward, {kind}"
            charts.append(draw_points(list(points.values()), title, xlabel, REWARD_LABEL, across))
    return charts


def pareto_picture(results: Results) -> bytes | None:
    """Attention FLOPs against reward as a PNG; None before anything is measured."""
    points, across = _pareto_points(results, "attention")
    if not points:
        return None
    labels = COST_LABELS["attention"], REWARD_LABEL
    return draw_picture(list(points.values()), list(points), *labels, across)


def _pareto_points(results: Results, kind: str) -> tuple[dict[str, Point], dict[str, float]]:
    """Points by variant, controls without attention, and the level of each scripted policy."""
    free = results.study.controls if kind == "attention" else set()
    front = results.front(kind)
    points = {
        name: Point(
            results.names.index(name), 0 if name in free else row.cost[kind], row.scores.reward,
            *row.interval, on_front=name in front,
        )
        for name, row in results.variants.items()
        if row.cost is not None
    }  # fmt: skip
    return points, {name: row.scores.reward for name, row in results.references.items()}


def curve_charts(results: Results, curve: CurveConfig) -> Sequence[str]:
    """What the task is judged by first, of every variant and reference along a curve."""
    lines: list[Line] = []
    meaning, shares = "success, share of episodes", True
    references = results.study.references
    for number, name in enumerate([*results.names, *references]):
        found = [
            (point.x, scores)
            for point in sorted(curve.points, key=lambda point: point.x)
            if (scores := results.scores(name, curve, point)) is not None
        ]
        if not found:
            continue
        first = found[0][1]
        if first.measured is not None and first.headline is not None:
            meaning, shares = first.headline.axis_label, first.are_shares
        levels = [one.mean_measured or (one.success, one.success_interval) for _, one in found]
        table = np.array([(x, y, *ends) for (x, _), (y, ends) in zip(found, levels, strict=True)])
        x, y, low, high = table.T
        lines.append(Line(number, name, x, y, low, high, name in references))
    if not lines:
        return []
    labels = f"{curve.name}, {meaning}", curve.xlabel, meaning
    return [draw_lines(lines, *labels, results.study.baseline, share=shares)]
