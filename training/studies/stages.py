"""What each stage of training brings to a study's headline arm: a section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from envs import tasks
from training.pages.html import note, table
from training.studies.cells import gain_cell, measured_cell, success_cell
from training.studies.config import CurveConfig, PointConfig, StudyConfig
from training.studies.results import Scores
from training.studies.runs import Run
from training.studies.summary import scores_at

__all__ = ["earlier_stages", "stages_section"]


def earlier_stages(study: StudyConfig, stages: Sequence[Run]) -> list[Run]:
    """The runs before the last of an arm and seed whose policies are evaluated too."""
    wanted = study.compare_stages and stages[0].arm.name == study.headline
    return list(stages[:-1]) if wanted else []


def stages_section(study: StudyConfig, out: Path, runs: Sequence[Run]) -> list[str]:
    """HTML of the headline arm's policy after each stage, on the task and along the curves; nothing
    where earlier stages are not evaluated. UserError when a file is damaged.
    """
    if not study.compare_stages or study.headline is None:
        return []
    of_arm = [run for run in runs if run.arm.name == study.headline]
    by_stage = [
        [run.directory.name for run in of_arm if run.stage == i] for i in range(len(study.stages))
    ]
    rows, all_shares = [], True
    for name, curve, point in _conditions(study):
        found = [scores_at(study, out, who, curve, point) for who in by_stage]
        there = [scores for scores in found if scores is not None]
        if len(there) == len(found):
            shares = there[0].are_shares
            all_shares = all_shares and shares
            gain = gain_cell(there[0].outcomes, there[-1].outcomes, 1 if shares else 3, shares)
            rows.append([escape(name), *map(_cell, there), gain])
    if not rows:
        return []
    head = [
        ("condition", ""),
        *((f"after stage {i + 1}", stage.trainer) for i, stage in enumerate(study.stages)),
        ("gain", f"{'points of 100, ' if all_shares else ''}95 % interval"),
    ]
    text = f"{study.headline}: {_judged_by()}, with 95 % intervals; rewards."
    return ["<h2>What each stage brings</h2>", table(head, rows), note(text)]


def _conditions(study: StudyConfig) -> list[tuple[str, CurveConfig | None, PointConfig | None]]:
    """The task, and every point that changes it."""
    return [
        ("the task", None, None),
        *(
            (f"{curve.name}, {point.x:g}", curve, point)
            for curve in study.curves
            for point in curve.points
            if not curve.is_of_the_task(point)
        ),
    ]


def _judged_by() -> str:
    """What policies are judged by, whichever their task."""
    outcomes = [task.headline_outcome for task in tasks()]
    return ", or ".join(["success", *(one.full_label for one in outcomes if one is not None)])


def _cell(scores: Scores) -> str:
    outcome = success_cell(scores) if scores.measured is None else measured_cell(scores)
    return f"{outcome}; {scores.reward:.3f}"
