"""Curves of a study's page: arms over training or along a curve, with bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.studies.figures import INK, dress, empty, finish, look, single

__all__ = ["OVERLAID", "Line", "draw_lines"]

OVERLAID = 4
"""So many arms are drawn over each other; of more, each has a panel of its own."""
_COLUMNS = 6
_PANEL_IN = 2.2, 1.6
_SCRIPTED = {"oracle": ":", "blind": "-.", "random": (0, (1, 4))}
"""Line patterns of scripted policies."""


@dataclass(frozen=True)
class Line:
    """A curve with a band around it."""

    number: int
    """Which colour and pattern."""
    name: str
    """Of an arm, or of a scripted policy."""
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scripted: bool = False


def draw_lines(
    lines: Sequence[Line], title: str, xlabel: str, ylabel: str, baseline: str, share: bool = False
) -> str:
    """Curves with bands as SVG, of class `panels` where each arm has a panel of its own, the
    baseline's curve grey behind it; with `share` the vertical axis is from 0 to 1."""
    arms = [line for line in lines if not line.scripted]
    scripted = [line for line in lines if line.scripted]
    if len(arms) <= OVERLAID:
        figure, axis = single(xlabel, ylabel)
        for line in arms:
            _draw(axis, line, share)
        axes, kind = [axis], ""
    else:
        figure, axes = _panels(arms, xlabel, ylabel, baseline, share)
        kind = "panels"
    for axis in axes:
        for line in scripted:
            pattern = _SCRIPTED.get(line.name, ":")
            axis.plot(line.x, line.y, color=INK, linestyle=pattern, linewidth=1, label=line.name)
        if share:
            axis.set_ylim(-0.03, 1.05)
        if all((line.x == np.round(line.x)).all() for line in lines):
            axis.xaxis.get_major_locator().set_params(integer=True)
    labelled = axes[0].get_legend_handles_labels()
    if labelled[0]:
        figure.legend(
            *labelled, loc="outside upper right", ncols=len(labelled[0]), frameon=False,
            fontsize=9, labelcolor=INK,
        )  # fmt: skip
    return finish(figure, title, kind)


def _panels(
    arms: Sequence[Line], xlabel: str, ylabel: str, baseline: str, share: bool
) -> tuple[Any, list[Any]]:
    """A figure with an axis for each arm, all to one scale."""
    columns = min(len(arms), _COLUMNS)
    rows = math.ceil(len(arms) / columns)
    figure = empty(columns * _PANEL_IN[0], rows * _PANEL_IN[1] + 0.6)
    figure.supxlabel(xlabel, color=INK, parse_math=False, fontsize=10)
    figure.supylabel(ylabel, color=INK, parse_math=False, fontsize=10)
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axis in axes[len(arms) :]:
        axis.remove()
    for place, (axis, line) in enumerate(zip(axes, arms, strict=False)):
        dress(axis, size=8)
        axis.tick_params(labelbottom=place + columns >= len(arms))
        axis.xaxis.get_major_locator().set_params(nbins=4)
        axis.set_title(
            f"{line.number + 1}. {line.name}", loc="left", fontsize=8.5, color=INK, parse_math=False
        )
        for other in arms:
            if other.name == baseline and other is not line:
                axis.plot(other.x, other.y, color=INK, alpha=0.35, linewidth=1.2, label=other.name)
        _draw(axis, line, share, solid=True)
    order = [axis for axis, line in zip(axes, arms, strict=False) if line.name != baseline]
    order += [axis for axis, line in zip(axes, arms, strict=False) if line.name == baseline]
    return figure, order


def _draw(axis: Any, line: Line, share: bool, solid: bool = False) -> None:
    """An arm's curve and band; `solid` where its colour need not tell it from all others."""
    colour, dashes, _ = look(line.number)
    pattern = (0, tuple(map(float, dashes.split()))) if dashes and not solid else "-"
    marker = "o" if len(line.x) <= 15 else ""
    axis.plot(
        line.x, line.y, color=colour, linestyle=pattern, linewidth=1.6, marker=marker, markersize=3
    )
    low, high = (np.clip(edge, 0, 1) if share else edge for edge in (line.low, line.high))
    axis.fill_between(line.x, low, high, color=colour, alpha=0.18, lw=0)
