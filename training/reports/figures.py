"""Figures of a page: curves with bands, cost against reward, and bars, each as one SVG.

Figures are drawn by matplotlib in the page's own colours and font. All lengths are in points of
print or, where the name says so, in inches.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from training.reports.plots import png, shown
from training.reports.svg import INK, finish

OVERLAID = 4
"""Largest number of variants that one panel shows; with more, each has a separate panel."""
MOST_NAMED = 12
"""Largest number of points that have their names beside them."""
_COLOURS = (
    "#3b82d6", "#e07b1a", "#2f9e5b", "#d64545", "#9467d6", "#a0714f", "#d65fa8", "#7f8794",
    "#a3a322", "#1ba3b5",
)  # fmt: skip
"""Colours by number; all of them differ from white and from black."""
_DASHES = ("", "6 2", "2 2")
"""Line patterns of the first ten, the next ten and the rest."""
_MARKERS = "os^"
"""Shapes of their points."""
_COLUMNS, _PANEL_IN = 6, (2.2, 1.6)
_SCRIPTED: dict[str, Any] = {"oracle": ":", "blind": "-.", "random": (0, (1, 4))}
_SCRIPTED["constant"] = (0, (3, 1, 1, 1))
"""Line patterns of scripted policies."""
_BEHIND: dict[str, Any] = {"color": INK, "alpha": 0.35, "linewidth": 1.2}
"""The baseline's line in the panels of other variants."""


@dataclass(frozen=True)
class Line:
    """A curve with a band around it."""

    number: int
    """Which colour and pattern."""
    name: str
    """Name of a variant or a scripted policy."""
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scripted: bool = False


@dataclass(frozen=True)
class Point:
    """The cost and the reward of a variant."""

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
    """The result of a variant in a separate row."""

    name: str
    value: float
    low: float
    high: float
    beside: str = ""
    """Written at the right."""


def empty(width_in: float, height_in: float) -> Any:
    """A transparent figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    figure.patch.set_visible(False)
    return figure


def dress(axis: Any, size: float = 10) -> None:
    """Ticks, grid and two spines in the page's text colour; `size` of the tick labels in points."""
    axis.tick_params(which="both", colors=INK, labelsize=size, left=False, bottom=False)
    axis.grid(alpha=0.2, color=INK)
    for name, spine in axis.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
    axis.patch.set_visible(False)


def look(number: int) -> tuple[str, str, str]:
    """Colour, line pattern and shape of a point of the variant with this number."""
    of_ten, place = divmod(number, len(_COLOURS))
    kind = min(of_ten, len(_DASHES) - 1)
    return _COLOURS[place], _DASHES[kind], _MARKERS[kind]


def _labelled(axis: Any, xlabel: str, ylabel: str = "") -> None:
    axis.set_xlabel(xlabel, color=INK, parse_math=False)
    axis.set_ylabel(ylabel, color=INK, parse_math=False)


def _single(xlabel: str, ylabel: str, *size_in: float) -> tuple[Any, Any]:
    """A figure and its one axis."""
    figure = empty(*(size_in or (5.4, 3.7)))
    axis = figure.subplots()
    _labelled(axis, xlabel, ylabel)
    dress(axis)
    return figure, axis


def _name_all(figure: Any, styles: dict[str, dict[str, Any]], **settings: Any) -> None:
    """A legend of verbatim names: no mathematics between dollars, no name omitted because of a
    leading underscore."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style) for style in styles.values()]
    names = list(map(shown, styles))
    figure.legend(handles, names, frameon=False, fontsize=9, **settings)


def draw_lines(
    lines: Sequence[Line], title: str, xlabel: str, ylabel: str, baseline: str, share: bool = False
) -> str:
    """Curves with bands as SVG, of class `panels` where each variant has a separate panel, with the
    baseline's curve in grey; with `share` the vertical axis is from 0 to 1."""
    variants = [line for line in lines if not line.scripted]
    scripted = [line for line in lines if line.scripted]
    panels = len(variants) > OVERLAID
    behind = [line for line in variants if panels and line.name == baseline]
    if panels:
        figure, axes = _panels(variants, xlabel, ylabel)
    else:
        figure, axis = _single(xlabel, ylabel)
        axes = [axis] * len(variants) or [axis]
    for axis, line in zip(axes, variants, strict=False):
        for other in behind:
            if other is not line:
                axis.plot(other.x, other.y, **_BEHIND)
        _draw(axis, line, share, solid=panels)
    for axis in dict.fromkeys(axes):
        for line in scripted:
            axis.plot(line.x, line.y, **_scripted(line.name))
        if share:
            axis.set_ylim(-0.03, 1.05)
        if all((line.x == np.round(line.x)).all() for line in lines):
            axis.xaxis.get_major_locator().set_params(integer=True)
    styles = {line.name: _BEHIND for line in behind}
    styles |= {line.name: _scripted(line.name) for line in scripted}
    if styles:
        _name_all(figure, styles, loc="outside upper right", ncols=len(styles), labelcolor=INK)
    return finish(figure, title, "panels" if panels else "")


def _scripted(name: str) -> dict[str, Any]:
    return {"color": INK, "linestyle": _SCRIPTED.get(name, ":"), "linewidth": 1}


def _panels(variants: Sequence[Line], xlabel: str, ylabel: str) -> tuple[Any, list[Any]]:
    """A figure with an axis for each variant, all to one scale."""
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
        heading = textwrap.fill(f"{line.number + 1}. {line.name}", 32)
        axis.set_title(heading, loc="left", fontsize=8.5, color=INK, parse_math=False)
    return figure, axes[: len(variants)]


def _draw(axis: Any, line: Line, share: bool, solid: bool) -> None:
    """A variant's curve and band; `solid` where its colour need not identify it."""
    colour, dashes, _ = look(line.number)
    pattern = (0, tuple(map(float, dashes.split()))) if dashes and not solid else "-"
    marker = "o" if len(line.x) <= 15 else ""
    axis.plot(
        line.x, line.y, color=colour, linestyle=pattern, linewidth=1.6, marker=marker,
        markersize=3,
    )  # fmt: skip
    low, high = (np.clip(edge, 0, 1) if share else edge for edge in (line.low, line.high))
    axis.fill_between(line.x, low, high, color=colour, alpha=0.18, linewidth=0)


def draw_bars(
    bars: Sequence[Bar], title: str, xlabel: str, across: dict[str, float], beside: str = ""
) -> str:
    """Results with intervals, a row each under its name, the first at the top, as SVG.

    Args:
        bars: the rows.
        title: of the figure.
        xlabel: label of the values. across: levels to compare with, by name. beside: heading of the
        column at the right.
    """
    figure, axis = _single(xlabel, "", 8.2, 0.9 + 0.24 * len(bars))
    dress(axis, size=9)
    rows, colour = np.arange(len(bars)), look(0)[0]
    axis.hlines(rows, [bar.low for bar in bars], [bar.high for bar in bars], colour, linewidth=2)
    axis.plot([bar.value for bar in bars], rows, "o", color=colour, markersize=5)
    at_right: Any = {"xycoords": ("axes fraction", "data"), "color": INK, "fontsize": 8}
    for row, bar in enumerate(bars):
        axis.annotate(bar.beside, (1.01, row), va="center", annotation_clip=False, **at_right)
    axis.annotate(beside, (1.01, -0.6), annotation_clip=False, **at_right)
    axis.set_yticks(rows, [bar.name for bar in bars], parse_math=False)
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    for name, level in _near(across, axis.get_xlim()).items():
        axis.axvline(level, color=INK, linewidth=0.8, linestyle="--", alpha=0.6)
        axis.annotate(
            name, (level, 1), xycoords=("data", "axes fraction"), textcoords="offset points",
            xytext=(0, 4), ha="center", color=INK, fontsize=8,
        )  # fmt: skip
    return finish(figure, title)


def _near(across: dict[str, float], ends: tuple[float, float]) -> dict[str, float]:
    """The levels within an axis's length of the variants; others would compress the plot."""
    (low, high), length = ends, ends[1] - ends[0]
    return {n: level for n, level in across.items() if low - length < level < high + length}


def draw_points(
    points: Sequence[Point], title: str, xlabel: str, ylabel: str, across: dict[str, float]
) -> str:
    """Cost against reward as SVG, numbered as in the legend; `across` are dashed levels by
    name, where they are near.

    Variants without cost are drawn beside each other on the left, where the axis is labelled none.
    """
    size_in = (8.2, 4.2) if any(point.name for point in points) else ()
    figure, axis = _single(xlabel, ylabel, *size_in)
    _scatter(axis, points, across)
    return finish(figure, title)


def draw_picture(
    points: Sequence[Point], names: Sequence[str], xlabel: str, ylabel: str,
    across: dict[str, float],
) -> bytes:  # fmt: skip
    """The same as a PNG on white, with the points' names beside it."""
    figure, axis = _single(xlabel, ylabel, 8.0, 3.7)
    styles = {
        f"{point.number + 1}. {name}": {**_mark(point.number), "linestyle": ""}
        for point, name in zip(points, names, strict=True)
    }
    _name_all(figure, styles, loc="outside right upper")
    _scatter(axis, points, across)
    figure.patch.set(facecolor="white", visible=True)
    return png(figure, dpi=150)


def _mark(number: int) -> dict[str, Any]:
    colour, _, shape = look(number)
    return {"color": colour, "marker": shape}


def _scatter(axis: Any, points: Sequence[Point], across: dict[str, float]) -> None:
    points = _scale_costs(axis, points)
    for point in points:
        error = [[point.y - point.low], [point.high - point.y]]
        axis.errorbar(
            point.x, point.y, yerr=error, **_mark(point.number), linestyle="", capsize=3,
            markersize=6,
        )  # fmt: skip
    front = sorted((point.x, point.y) for point in points if point.on_front)
    if front:
        x, y = zip(*front, strict=True)
        axis.plot(x, y, color=INK, linewidth=1, alpha=0.6, zorder=0)
        axis.plot(
            x, y, "o", markersize=12, markerfacecolor="none", color=INK, markeredgewidth=1,
            clip_on=False,
        )  # fmt: skip
    for name, level in _near(across, axis.get_ylim()).items():
        axis.axhline(level, color=INK, linewidth=0.8, linestyle="--", alpha=0.6)
        axis.annotate(
            name, (1, level), xycoords=("axes fraction", "data"), textcoords="offset points",
            xytext=(4, 0), va="center", color=INK, fontsize=8,
        )  # fmt: skip
    _number_points(axis, points)


def _scale_costs(axis: Any, points: Sequence[Point]) -> Sequence[Point]:
    """Prepare the axis of costs; returns the points, with those without cost moved to the left of
    all others."""
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
    axis.axvline(least / step, color=INK, linewidth=0.6, linestyle=":")
    axis.annotate(
        "none", (least / step ** (1.5 + len(free) / 2), 0), ha="center", color=INK, fontsize=8,
        xycoords=("data", "axes fraction"), textcoords="offset points", xytext=(0, 3),
    )  # fmt: skip
    left = {number: least / step**rank for rank, number in enumerate(reversed(free), 2)}
    return [replace(point, x=left.get(point.number, point.x)) for point in points]


def _number_points(axis: Any, points: Sequence[Point]) -> None:
    """A number near each point at a free position, connected to the point by a line if it is far
    away."""
    from matplotlib.transforms import Bbox

    axis.figure.draw_without_rendering()  # only now is it known where things will lie
    axis.figure.set_layout_engine("none")  # they stay there; what follows is inside
    scale = axis.figure.dpi / 72  # pixels in a point of print
    centres = axis.transData.transform([(point.x, point.y) for point in points])
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in centres]
    angles = np.pi * (0.25 + np.arange(16) / 8)
    radii = (12, 18, 26, 36, 48, 62)
    offsets = [(r * np.cos(a), r * np.sin(a)) for r in radii for a in angles]
    for point, centre in zip(points, centres, strict=True):
        text = textwrap.fill(point.name, 24) or str(point.number + 1)
        lines = text.splitlines()
        half = scale * 2.3 * max(map(len, lines)) + 3, scale * 5.5 * len(lines)
        for dx, dy in offsets:
            # A long label begins or ends beside its point.
            offset = dx + max(half[0] / scale - 2, 0) * np.sign(round(dx, 3)), dy
            x, y = centre + scale * np.array(offset)
            box = Bbox.from_extents(x - half[0], y - half[1], x + half[0], y + half[1])
            inside = axis.bbox.contains(box.x0, box.y0) and axis.bbox.contains(box.x1, box.y1)
            if inside and not box.count_overlaps(taken):
                break
        taken.append(box)
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "alpha": 0.6}
        axis.annotate(
            text, (point.x, point.y), xytext=offset, textcoords="offset points",
            ha="center", va="center", color=INK, fontsize=8 if point.name else 9,
            parse_math=False, arrowprops=line if np.hypot(dx, dy) > radii[1] else None,
        )  # fmt: skip
