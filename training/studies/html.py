"""Pieces of a study's page: tables, their cells and notes as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from training.studies.intervals import mean_interval
from training.studies.results import Scores

__all__ = ["between", "gain_cell", "measured_cell", "millions", "note", "success_cell", "table"]


def note(text: str) -> str:
    """A remark in small print."""
    return f'<p class="note">{escape(text)}</p>'


def table(head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], text: int = -1) -> str:
    """Columns as (title, unit or remark); cells are HTML; column `text` may be long."""
    kinds = [' class="text"' if i == text else "" for i in range(len(head))]
    cells = "".join(
        f"<th{kind}>{escape(title)}" + (f"<small>{escape(unit)}</small>" if unit else "") + "</th>"
        for kind, (title, unit) in zip(kinds, head, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{c}</td>' for k, c in zip(kinds, row, strict=True))}</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0"><table>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def between(value: str, low: str, high: str) -> str:
    """A value, and in small print below it the interval that it lies in."""
    return f"{value} <small>{low} to {high}</small>"


def gain_cell(before: np.ndarray, after: np.ndarray, decimals: int, shares: bool = True) -> str:
    """How much more, (seeds, scenes) paired, of shares in points of 100, and the 95% interval; a
    dash where a seed has one of them alone."""
    if before.shape != after.shape:
        return "-"
    more = (100 if shares else 1) * (after - before)
    low, high = mean_interval(more)
    return between(f"{more.mean():+.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}")


def millions(count: float) -> str:
    """A count of FLOPs in millions, as exact as it takes to tell policies apart."""
    return f"{count / 1e6:.3f}" if count else "0"


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
