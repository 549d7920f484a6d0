"""Cells of a study's tables: a measured value above its 95% interval."""

from __future__ import annotations

import numpy as np

from training.evaluation.intervals import mean_interval
from training.pages.html import between
from training.studies.results import Scores

__all__ = ["gain_cell", "measured_cell", "success_cell"]


def gain_cell(before: np.ndarray, after: np.ndarray, decimals: int, shares: bool = True) -> str:
    """How much more, (seeds, scenes) paired, of shares in points of 100, and the 95% interval; a
    dash where a seed has one of them alone."""
    if before.shape != after.shape:
        return "-"
    more = (100 if shares else 1) * (after - before)
    low, high = mean_interval(more)
    return between(f"{more.mean():+.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}")


def success_cell(scores: Scores) -> str:
    """Share of the episodes that succeeded, and its 95% interval."""
    low, high = scores.success_interval
    return between(f"{100 * scores.success:.1f} %", f"{100 * low:.1f}", f"{100 * high:.1f}")


def measured_cell(scores: Scores) -> str:
    """The outcome that the task is judged by first, and its 95% interval; a dash without."""
    if scores.mean_measured is None:
        return "-"
    mean, (low, high) = scores.mean_measured
    return between(f"{mean:.3f}", f"{low:.3f}", f"{high:.3f}")
