"""Curves of a study's page: variants over training or along a curve, with bands."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.reports.figures import dress, empty, look, name_all, single
from training.reports.svg import INK, finish

__all__ = ["OVERLAID", "Line", "draw_lines"]

OVERLAID = 4
"""So many variants are drawn over each other; of more, each has a panel of its own."""
_COLUMNS = 6
_PANEL_IN = 2.2, 1.6
_HEADING_LETTERS = 32  # of a line above a panel
_SCRIPTED: dict[str, Any] = {"oracle": ":", "blind": "-.", "random": (0, (1, 4))}
"""Line patterns of scripted policies."""
_BEHIND: dict[str, Any] = {"color": INK, "alpha": 0.35, "linewidth": 1.2}
"""The baseline's line in other variants' panels."""


@dataclass(frozen=True)
class Line:
    """A curve with a band around it."""

    number: int
    """Which colour and pattern."""
    name: str
    """Of a variant, or of a scripted policy."""
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scripted: bool = False


def draw_lines(
    lines: Sequence[Line], title: str, xlabel: str, ylabel: str, baseline: str, share: bool = False
) -> str:
    """Curves with bands as SVG, of class `panels` where each variant has a panel of its own, the
    baseline's curve grey behind it; with `share` the vertical axis is from 0 to 1."""
    variants = [line for line in lines if not line.scripted]
    scripted = [line for line in lines if line.scripted]
    if len(variants) <= OVERLAID:
        figure, axis = single(xlabel, ylabel)
        for line in variants:
            _draw(axis, line, share)
        axes, kind, behind = [axis], "", []
    else:
        behind = [line for line in variants if line.name == baseline]
        figure, axes = _panels(variants, behind, xlabel, ylabel, share)
        kind = "panels"
    for axis in axes:
        for line in scripted:
            axis.plot(line.x, line.y, clip_on=False, **_scripted(line.name))
        if share:
            axis.set_ylim(-0.03, 1.05)
        if all((line.x == np.round(line.x)).all() for line in lines):
            axis.xaxis.get_major_locator().set_params(integer=True)
    styles = {line.name: _BEHIND for line in behind}
    styles |= {line.name: _scripted(line.name) for line in scripted}
    if styles:
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], **style) for style in styles.values()]
        name_all(
            figure, handles, list(styles), loc="outside upper right", ncols=len(styles),
            labelcolor=INK,
        )  # fmt: skip
    return finish(figure, title, kind)


def _scripted(name: str) -> dict[str, Any]:
    return {"color": INK, "linestyle": _SCRIPTED.get(name, ":"), "linewidth": 1}


def _panels(
    variants: Sequence[Line], behind: Sequence[Line], xlabel: str, ylabel: str, share: bool
) -> tuple[Any, list[Any]]:
    """A figure with an axis for each variant, to one scale; lines `behind` in those of others."""
    columns = min(len(variants), _COLUMNS)
    rows = math.ceil(len(variants) / columns)
    figure = empty(columns * _PANEL_IN[0], rows * _PANEL_IN[1] + 0.6)
    figure.supxlabel(xlabel, color=INK, parse_math=False, fontsize=10)
    figure.supylabel(ylabel, color=INK, parse_math=False, fontsize=10)
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axis in axes[len(variants) :]:
        axis.remove()
    for place, (axis, line) in enumerate(zip(axes, variants, strict=False)):
        dress(axis, size=8)
        axis.tick_params(labelbottom=place + columns >= len(variants))
        axis.xaxis.get_major_locator().set_params(nbins=4)
        heading = textwrap.fill(f"{line.number + 1}. {line.name}", _HEADING_LETTERS)
        axis.set_title(heading, loc="left", fontsize=8.5, color=INK, parse_math=False)
        for other in behind:
            if other is not line:
                axis.plot(other.x, other.y, clip_on=False, **_BEHIND)
        _draw(axis, line, share, solid=True)
    return figure, axes[: len(variants)]


def _draw(axis: Any, line: Line, share: bool, solid: bool = False) -> None:
    """A variant's curve and band; `solid` where its colour need not tell it from all others."""
    colour, dashes, _ = look(line.number)
    pattern = (0, tuple(map(float, dashes.split()))) if dashes and not solid else "-"
    marker = "o" if len(line.x) <= 15 else ""
    axis.plot(
        line.x, line.y, color=colour, linestyle=pattern, linewidth=1.6, marker=marker,
        markersize=3, clip_on=False,
    )  # fmt: skip
    low, high = (np.clip(edge, 0, 1) if share else edge for edge in (line.low, line.high))
    around = np.concatenate([line.x, line.x[::-1]]), np.concatenate([low, high[::-1]])
    axis.fill(*around, color=colour, alpha=0.18, linewidth=0, clip_on=False)
