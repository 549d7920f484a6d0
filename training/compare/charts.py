"""Which charts a study's page has, and what is drawn in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from envs import find_task
from training.analysis.intervals import Interval
from training.collect.outcomes import outcomes_of
from training.compare.config import CurveConfig, StudyConfig
from training.compare.grouped import Pairs
from training.compare.results import Scores, finished_runs, training_spread
from training.compare.runs import TrainingJob
from training.compare.summary import Summary, scores_of
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

__all__ = ["curve_charts", "first_chart", "pareto_charts", "pareto_picture", "training_charts"]

COST_LABELS = {
    "attention": "attention, FLOPs a step (multiply-add = 2)",
    "total": "whole policy, FLOPs a step (multiply-add = 2)",
}
REWARD_LABEL = "reward per episode"


def training_charts(
    study: StudyConfig, runs: Sequence[TrainingJob], pairs: Pairs | None = None, of: str = ""
) -> list[str]:
    """A chart for every stage and column of its metrics that has values.

    Args:
        study: what is compared.
        runs: all of its runs.
        pairs: what each line is the mean of; None: every variant, over its seeds.
        of: what the titles say of that.
    """
    if pairs is None:
        pairs = {
            variant.name: [(variant.name, seed) for seed in study.seeds] for variant in study.arms
        }
    group = next(variant.group for variant in study.arms if variant.name == study.baseline)
    baseline = study.baseline if study.baseline in pairs else group or ""
    charts = []
    task = find_task(runs[0].job.env_id) if runs else None
    for stage, settings in enumerate(study.stages):
        done = {variant.name: finished_runs(runs, variant.name, stage) for variant in study.arms}
        curves = [[done[n][s] for n, s in each if s in done[n]] for each in pairs.values()]
        for panel in panels(outcomes_of(task)):
            lines = []
            for number, (name, of_line) in enumerate(zip(pairs, curves, strict=True)):
                found = training_spread(of_line, panel.column)
                if found is not None:
                    band = found.low, found.high
                    lines.append(Line(number, name, found.x, found.mean, *band))
            if not panel.is_told_by(line.y for line in lines):
                continue
            if len(lines) > OVERLAID and all(len(line.x) == 1 for line in lines):
                continue  # a panel for every variant, each with a single point
            of_stage = f"stage {stage + 1}: " if len(study.stages) > 1 else ""
            title = f"Training, {of_stage}{panel.meaning}{of}"
            xlabel = f"{of_stage}iteration of training.{settings.trainer}"
            labels = title, xlabel, panel.meaning
            charts.append(draw_lines(lines, *labels, baseline, panel.share))
    return charts


def first_chart(study: StudyConfig, summary: Summary) -> str | None:
    """What a page opens with: the reward of every variant, by name, against its attention FLOPs;
    of many variants, or without costs, a row each. None before anything is measured."""
    if not summary.variants:
        return None
    points, across = _pareto_points(study, summary, "attention")
    title = "Reward of each variant"
    if 1 < len(points) == len(summary.variants) <= MOST_NAMED:
        named = [replace(point, name=name) for name, point in points.items()]
        return draw_points(named, title, COST_LABELS["attention"], REWARD_LABEL, across)
    rows = [
        Bar(f"{name} (control)" if name in study.controls else name,
            row.scores.reward, *row.interval,
            "" if row.cost is None else f"{row.cost['attention'] / 1e6:.3g} M")
        for name, row in summary.variants.items()
    ]  # fmt: skip
    beside = "attention FLOPs" if any(row.beside for row in rows) else ""
    return draw_bars(rows, title, REWARD_LABEL, across, beside)


def pareto_charts(study: StudyConfig, summary: Summary) -> list[str]:
    """Attention FLOPs and total FLOPs against reward."""
    charts = []
    for kind, xlabel in COST_LABELS.items():
        points, across = _pareto_points(study, summary, kind)
        if points:
            title = f"FLOPs against reward, {kind}"
            charts.append(draw_points(list(points.values()), title, xlabel, REWARD_LABEL, across))
    return charts


def pareto_picture(study: StudyConfig, summary: Summary) -> bytes | None:
    """Attention FLOPs against reward as a PNG; None before anything is measured."""
    points, across = _pareto_points(study, summary, "attention")
    if not points:
        return None
    return draw_picture(
        list(points.values()), list(points), COST_LABELS["attention"], REWARD_LABEL, across
    )


def _pareto_points(
    study: StudyConfig, summary: Summary, kind: str
) -> tuple[dict[str, Point], dict[str, float]]:
    """Points by variant, controls without attention, and the level of each scripted policy."""
    numbers = {variant.name: number for number, variant in enumerate(study.arms)}
    free = study.controls if kind == "attention" else set()
    points = {
        name: Point(
            numbers[name], 0 if name in free else row.cost[kind], row.scores.reward,
            *row.interval, on_front=name in summary.front[kind],
        )
        for name, row in summary.variants.items()
        if row.cost is not None
    }  # fmt: skip
    return points, {name: row.scores.reward for name, row in summary.references.items()}


def curve_charts(study: StudyConfig, curve: CurveConfig, out: Path) -> list[str]:
    """What the task is judged by first, of every variant and reference along a curve."""
    lines: list[Line] = []
    meaning, shares = "success, share of episodes", True
    for number, name in enumerate([*(variant.name for variant in study.arms), *study.references]):
        found = [
            (point.x, scores)
            for point in sorted(curve.points, key=lambda point: point.x)
            if (scores := scores_of(study, out, name, curve, point)) is not None
        ]
        if not found:
            continue
        first = found[0][1]
        if first.measured is not None and first.headline is not None:
            meaning, shares = first.headline.axis_label, first.are_shares
        measured = [_outcome(scores) for _, scores in found]
        x = np.array([place for place, _ in found])
        y = np.array([value for value, _ in measured])
        low, high = np.array([interval for _, interval in measured]).T
        lines.append(Line(number, name, x, y, low, high, name in study.references))
    if not lines:
        return []
    labels = f"{curve.name}, {meaning}", curve.xlabel, meaning
    return [draw_lines(lines, *labels, study.baseline, share=shares)]


def _outcome(scores: Scores) -> tuple[float, Interval]:
    return scores.mean_measured or (scores.success, scores.success_interval)
