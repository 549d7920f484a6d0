"""The page of a study: one HTML file that holds its figures and loads nothing from elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs import Task, find_task, tasks
from training.collect import environments
from training.compare import grouped, tables
from training.compare.charts import curve_charts, pareto_charts, training_charts
from training.compare.config import CurveConfig, StudyConfig
from training.compare.line_charts import OVERLAID
from training.compare.results import commits
from training.compare.runs import TrainingJob
from training.compare.summary import Summary, at_ceiling, headline, of_controls
from training.reports.figures import look
from training.reports.html import Table, page

__all__ = ["render"]

_SHAPES = {
    "o": "M 9 5 a 4 4 0 1 0 8 0 a 4 4 0 1 0 -8 0", "s": "M 9.5 1.5 h 7 v 7 h -7 z",
    "^": "M 13 1 l 4.5 8 h -9 z",
}  # fmt: skip
"""Outlines of the points' shapes in the legend."""


def render(
    study: StudyConfig, out: Path, summary: Summary, command: str, runs: Sequence[TrainingJob],
    missing: Sequence[str], failed: Sequence[str] = (),
) -> str:  # fmt: skip
    """The page as text, the same for the same files; its words are in `study.html` of the pages.

    Args:
        study: what is compared.
        out: where its results are.
        summary: what they come to.
        command: what runs it anew, as a shell takes it.
        runs: all training runs, seeds outermost.
        missing: what is not done yet, in words.
        failed: what of it was tried, and why it failed.
    """
    task = find_task(runs[0].job.env_id) if runs else None
    outcomes = [one.headline_outcome for one in tasks()]
    versions = summary.provenance.get("versions", {})
    return page(
        "study.html",
        title=study.title,
        study=study,
        summary=summary,
        command=command,
        missing=missing,
        failed=failed,
        task=task,
        scene=_scene(task),
        sentences=[*filter(None, [of_controls(study, summary)]), *headline(study, summary)],
        ceiling=at_ceiling(summary),
        one_seed=any(row.scores.seeds == 1 for row in summary.arms.values()),
        looks=_looks([arm.name for arm in study.arms]),
        overlaid=len(study.arms) <= OVERLAID,
        most_overlaid=OVERLAID,
        results=tables.results(study, out, summary, runs),
        stopped=grouped.stops(runs),
        **_averaged(study, out, summary, runs),
        pareto=pareto_charts(study, summary),
        decisions=tables.decisions(summary),
        training=training_charts(study, runs),
        held_out=tables.held_out(study, runs),
        curves=[
            {
                "name": curve.name, "episodes": curve.episodes, "repair": curve.repair,
                "charts": curve_charts(study, curve, out), "trained_on": _trained_on(curve, runs),
                "controls": tables.controls(study, curve, out),
            }
            for curve in study.curves
        ],
        stages=tables.stages(study, out, runs),
        judged_by=[outcome.full_label for outcome in outcomes if outcome is not None],
        gaze=tables.gaze(study, runs),
        budget=tables.budget(study, runs),
        on_cpu={study.device, *(getattr(run.job, "device", "cpu") for run in runs)} == {"cpu"},
        commits=commits(runs),
        versions=", ".join(f"{name} {version}" for name, version in versions.items() if version),
        machine=summary.provenance.get("hardware", {}),
    )  # fmt: skip


def _averaged(
    study: StudyConfig, out: Path, summary: Summary, runs: Sequence[TrainingJob]
) -> dict[str, Any]:
    """The sections of the best seeds and of groups of arms; their tables are None without any."""

    def section(pairs: grouped.Pairs, table: Table | None, of: str) -> dict[str, Any]:
        drawn = training_charts(study, runs, pairs, of) if pairs else []
        return {"table": table, "looks": _looks(list(pairs)), "charts": drawn}

    best, of_groups = grouped.best_pairs(study, out), grouped.group_pairs(study)
    return {
        "best": section(
            best, grouped.best(study, out, best), f", the best {study.best_seeds} seeds"
        ),
        "groups": section(of_groups, grouped.groups(summary, runs, of_groups), ", by group"),
    }


def _looks(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Colour, line pattern and outline of each, for a legend."""
    found = {name: look(number) for number, name in enumerate(names)}
    return {name: (colour, dash, _SHAPES[shape]) for name, (colour, dash, shape) in found.items()}


def _scene(task: Task | None) -> str:
    """A picture of the task in base64; "" where there is none."""
    if task is None or task.scene is None or not task.scene.is_file():
        return ""
    return base64.b64encode(task.scene.read_bytes()).decode()


def _trained_on(curve: CurveConfig, runs: Sequence[TrainingJob]) -> str:
    """What the first arm's stages had for the settings that a curve changes."""
    keys = list(dict.fromkeys(key for point in curve.points for key in point.set))
    stages = []
    for run in runs:
        if (run.variant.name, run.seed) != (runs[0].variant.name, runs[0].seed) or not keys:
            continue
        settings = environments.resolved(run.job.env_id, run.job.env)
        values = (f"{key} = {json.dumps(settings.get(key, 'the default'))}" for key in keys)
        stages.append(f"stage {run.stage + 1} ({run.trainer}) {', '.join(values)}")
    return f"Trained with: {'; '.join(stages)}." if stages else ""
