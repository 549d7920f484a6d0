"""A study's controls against all kinds of attention together along a curve: a table of the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.pages.html import table
from training.studies.cells import gain_cell
from training.studies.config import CurveConfig, StudyConfig
from training.studies.summary import scores_of

__all__ = ["controls_table"]


def controls_table(study: StudyConfig, curve: CurveConfig, out: Path) -> str:
    """HTML of how much more of what the task is judged by each control reaches, at each point.

    Seeds and scenes are paired; intervals are over both. Nothing without a control, without several
    kinds of attention, or where a policy is not evaluated yet. UserError when a file is damaged.
    """
    controls = [arm.name for arm in study.arms if arm.control]
    kinds = [arm.name for arm in study.arms if not arm.control]
    if not controls or len(kinds) < 2:
        return ""
    points = sorted(curve.points, key=lambda point: point.x)
    outcomes: dict[str, list[np.ndarray]] = {}
    shares = True
    for name in (*kinds, *controls):
        found = [scores_of(study, out, name, curve, point) for point in points]
        shares = shares and all(scores.are_shares for scores in found if scores is not None)
        outcomes[name] = [scores.outcomes for scores in found if scores is not None]
    everything = [one for name in outcomes for one in outcomes[name]]
    if len(everything) < len(outcomes) * len(points) or len({m.shape for m in everything}) > 1:
        return ""
    rows = []
    for place, point in enumerate(points):
        together = np.mean([outcomes[name][place] for name in kinds], axis=0)
        decimals = 0 if shares else 3
        more = [gain_cell(together, outcomes[name][place], decimals, shares) for name in controls]
        mean = f"{100 * together.mean():.0f} %" if shares else f"{together.mean():.3f}"
        rows.append([f"{point.x:g}", mean, *more])
    head = [
        (curve.xlabel, ""),
        ("all kinds of attention", "together"),
        *((name, f"{'points ' if shares else ''}more, 95 % interval") for name in controls),
    ]
    return table(head, rows)
