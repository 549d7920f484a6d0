"""How well cloning fits what it was not trained on: a section of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from training.evaluation.intervals import seeds_interval
from training.pages.html import between, note, table
from training.studies.config import StudyConfig
from training.studies.results import read_training
from training.studies.runs import Run

__all__ = ["held_out_section"]

_COLUMN = "val_loss"


def held_out_section(study: StudyConfig, runs: Sequence[Run]) -> list[str]:
    """HTML of the last held-out loss of every run that cloned, by arm; nothing where none did."""
    parts: list[str] = []
    for stage in range(len(study.stages)):
        losses = {arm.name: _last(runs, arm.name, stage) for arm in study.arms}
        rows = [_row(study, name, losses) for name in losses if losses[name]]
        if rows:
            of_stage = f"of stage {stage + 1}, " if len(study.stages) > 1 else ""
            head = [
                ("arm", ""),
                ("held-out loss", f"{of_stage}mean, 95 % interval over seeds"),
                ("more than the baseline", "of the same seeds, 95 % interval"),
                *((f"seed {seed}", "") for seed in study.seeds),
            ]
            parts.append(table(head, rows))
    if not parts:
        return []
    remark = (
        "The loss of cloning on episodes that were held out of it, in the last iteration. Runs of "
        "one seed hold out the same episodes where they learn from one recording, or in one "
        "iteration from an expert in one environment. Others hold out their own: walks of the "
        "policy, or of an expert with another camera. How far those differ is in the loss too."
    )
    return ["<h2>Held-out loss</h2>", *parts, note(remark)]


def _last(runs: Sequence[Run], arm: str, stage: int) -> dict[int, float]:
    """The last held-out loss of an arm's finished runs, by seed."""
    found = {}
    for run in runs:
        if (run.arm.name, run.stage) != (arm, stage):
            continue
        curve = read_training(run.directory, run.job.iterations)
        if curve is not None and _COLUMN in curve.columns:
            last = float(curve.columns[_COLUMN][-1])
            if math.isfinite(last):
                found[run.seed] = last
    return found


def _row(study: StudyConfig, name: str, losses: dict[str, dict[int, float]]) -> list[str]:
    own, base = losses[name], losses[study.baseline]
    more = [loss - base[seed] for seed, loss in own.items() if seed in base]
    by_seed = [f"{own[seed]:#.4g}" if seed in own else "-" for seed in study.seeds]
    against = "-" if name == study.baseline or not more else _cell(more, "+#.3g")
    return [escape(name), _cell(list(own.values()), "#.4g"), against, *by_seed]


def _cell(values: Sequence[float], form: str) -> str:
    """The mean, and its interval where there are several seeds."""
    mean, around = f"{np.mean(values):{form}}", seeds_interval(np.array(values))
    return mean if around is None else between(mean, *(f"{end:{form}}" for end in around))
