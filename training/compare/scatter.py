"""Cost against reward on a study's page: a point a variant, numbered, the Pareto front ringed."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from training.reports.figures import HEIGHT_IN, WIDTH_IN, dress, empty, look, name_all, single
from training.reports.svg import INK, finish

__all__ = ["MOST_NAMED", "Bar", "Point", "draw_bars", "draw_picture", "draw_points"]

MOST_NAMED = 12
"""So many points have their names beside them."""
_LETTERS = 24  # of a line of a name

_RADII_PT = (12, 18, 26, 36, 48, 62)
"""How far from its point a number may stand."""
_DIRECTIONS = 16
"""In how many directions."""


@dataclass(frozen=True)
class Point:
    """A variant's cost and reward."""

    number: int
    x: float
    y: float
    low: float
    high: float
    on_front: bool = False
    name: str = ""
    """Written beside the point; empty: its number."""


@dataclass(frozen=True)
class Bar:
    """A variant's result in a row of its own."""

    name: str
    value: float
    low: float
    high: float
    beside: str = ""
    """Written at the right."""


def draw_bars(
    bars: Sequence[Bar], title: str, xlabel: str, across: dict[str, float], beside: str = ""
) -> str:
    """Results with intervals, a row each under its name, the first at the top, as SVG.

    Args:
        bars: the rows.
        title: of the figure.
        xlabel: what the values are.
        across: levels to compare with, by name.
        beside: heading of the column at the right.
    """
    figure = empty(8.2, 0.9 + 0.24 * len(bars))
    axis = figure.subplots()
    dress(axis, size=9)
    rows, colour = np.arange(len(bars)), look(0)[0]
    ends = [(bar.low, bar.high, math.nan) for bar in bars]
    axis.plot(np.ravel(ends), np.repeat(rows, 3), color=colour, linewidth=2)
    axis.plot([bar.value for bar in bars], rows, "o", color=colour, markersize=5)
    for row, bar in enumerate(bars):
        axis.annotate(
            bar.beside, (1.01, row), xycoords=("axes fraction", "data"), va="center", color=INK,
            fontsize=8, annotation_clip=False,
        )  # fmt: skip
    axis.set_yticks(range(len(bars)), [bar.name for bar in bars], parse_math=False)
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(xlabel, color=INK, parse_math=False)
    axis.annotate(
        beside, (1.01, -0.6), xycoords=("axes fraction", "data"), color=INK, fontsize=8,
        annotation_clip=False,
    )  # fmt: skip
    left, right = axis.get_xlim()
    for name, level in across.items():
        if left - (right - left) < level < right + (right - left):
            axis.axvline(level, color=INK, linewidth=0.8, linestyle="--", alpha=0.6)
            axis.annotate(
                name, (level, 1), xycoords=("data", "axes fraction"), textcoords="offset points",
                xytext=(0, 4), ha="center", color=INK, fontsize=8,
            )  # fmt: skip
    return finish(figure, title)


def _mark(number: int) -> dict[str, Any]:
    colour, _, shape = look(number)
    return {"color": colour, "marker": shape}


def draw_points(
    points: Sequence[Point], title: str, xlabel: str, ylabel: str, across: dict[str, float]
) -> str:
    """Cost against reward as SVG, numbered as in the legend; `across` are dashed levels by
    name, where they are near.

    Variants without cost are drawn beside each other on the left, where the axis is labelled none.
    """
    figure, axis = single(xlabel, ylabel)
    if any(point.name for point in points):
        figure.set_size_inches(8.2, 4.2)
    _scatter(axis, points, across)
    return finish(figure, title)


def draw_picture(
    points: Sequence[Point], names: Sequence[str], xlabel: str, ylabel: str,
    across: dict[str, float],
) -> bytes:  # fmt: skip
    """The same as a PNG on white, with the points' names beside it."""
    from matplotlib.lines import Line2D
    from PIL import Image  # which matplotlib brings

    figure, axis = single(xlabel, ylabel)
    figure.set_size_inches(WIDTH_IN + 2.6, HEIGHT_IN)
    handles = [Line2D([], [], **_mark(point.number), linestyle="") for point in points]
    numbered = [f"{point.number + 1}. {name}" for point, name in zip(points, names, strict=True)]
    name_all(figure, handles, numbered, loc="outside right upper")
    _scatter(axis, points, across)
    figure.patch.set(facecolor="white", visible=True)
    data, small = io.BytesIO(), io.BytesIO()
    figure.savefig(data, format="png", dpi=150, metadata={"Software": None})
    image = Image.open(data).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(small, format="png", optimize=True)
    return small.getvalue()


def _scatter(axis: Any, points: Sequence[Point], across: dict[str, float]) -> None:
    points = _scale_costs(axis, points)
    for point in points:
        error = [[point.y - point.low], [point.high - point.y]]
        axis.errorbar(
            point.x, point.y, yerr=error, **_mark(point.number), linestyle="", capsize=3,
            markersize=6, clip_on=False,
        )  # fmt: skip
    front = sorted((point.x, point.y) for point in points if point.on_front)
    if front:
        axis.plot(
            *zip(*front, strict=True), color=INK, linewidth=1, alpha=0.6, zorder=0, clip_on=False
        )
        axis.plot(
            *zip(*front, strict=True), "o", markersize=12, markerfacecolor="none", color=INK,
            markeredgewidth=1, clip_on=False,
        )  # fmt: skip
    bottom, top = axis.get_ylim()
    for name, level in across.items():
        if not bottom - (top - bottom) < level < top + (top - bottom):
            continue  # it would press the variants together
        axis.axhline(level, color=INK, linewidth=0.8, linestyle="--", alpha=0.6, clip_on=False)
        axis.annotate(
            name, (1, level), xycoords=("axes fraction", "data"), textcoords="offset points",
            xytext=(4, 0), va="center", color=INK, fontsize=8,
        )  # fmt: skip
    _number_points(axis, points)


def _scale_costs(axis: Any, points: Sequence[Point]) -> Sequence[Point]:
    """Prepare the axis of costs; the points, those without cost moved left of all others."""
    from matplotlib.ticker import EngFormatter, LogLocator

    costs = [point.x for point in points if point.x > 0] or [1.0]
    least, most = min(costs), max(costs)
    step = max(most / least, 5.0) ** 0.08
    if most / least > 5:
        axis.set_xscale("log")
        subs = (1, 2, 5) if most / least < 50 else (1,)
        ticks = LogLocator(subs=subs).tick_values(least, most)
        axis.set_xticks([tick for tick in ticks if least / step < tick < most * step])
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.minorticks_off()
    free = [point.number for point in points if point.x == 0]
    if not free:
        return points
    axis.axvline(least / step, color=INK, linewidth=0.6, linestyle=":", clip_on=False)
    axis.annotate(
        "none", (least / step ** (1.5 + len(free) / 2), 0), ha="center", color=INK, fontsize=8,
        xycoords=("data", "axes fraction"), textcoords="offset points", xytext=(0, 3),
    )  # fmt: skip
    left = {number: least / step**rank for rank, number in enumerate(reversed(free), 2)}
    return [replace(point, x=left.get(point.number, point.x)) for point in points]


def _number_points(axis: Any, points: Sequence[Point]) -> None:
    """A number near each point, where nothing before it stands, tied to it where it is far off."""
    from matplotlib.transforms import Bbox

    axis.figure.draw_without_rendering()  # only now is it known where things will lie
    scale = axis.figure.dpi / 72  # pixels in a point of print
    centres = axis.transData.transform([(point.x, point.y) for point in points])
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in centres]
    angles = np.pi * (0.25 + 2 * np.arange(_DIRECTIONS) / _DIRECTIONS)
    offsets = [(r * np.cos(a), r * np.sin(a)) for r in _RADII_PT for a in angles]
    for point, centre in zip(points, centres, strict=True):
        text = textwrap.fill(point.name, _LETTERS) or str(point.number + 1)
        lines = text.splitlines()
        half = scale * 2.3 * max(map(len, lines)) + 3, scale * 5.5 * len(lines)
        for dx, dy in offsets:
            # A long label begins or ends beside its point.
            shift = max(half[0] / scale - 2, 0) * np.sign(round(dx, 3))
            offset = dx + shift, dy
            x, y = centre + scale * np.array(offset)
            box = Bbox.from_extents(x - half[0], y - half[1], x + half[0], y + half[1])
            inside = axis.bbox.contains(box.x0, box.y0) and axis.bbox.contains(box.x1, box.y1)
            if inside and not box.count_overlaps(taken):
                break
        taken.append(box)
        far = np.hypot(dx, dy) > _RADII_PT[1]
        axis.annotate(
            text, (point.x, point.y), xytext=offset, textcoords="offset points",
            ha="center", va="center", color=INK, fontsize=8 if point.name else 9,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "alpha": 0.6}
            if far else None,
        )  # fmt: skip
