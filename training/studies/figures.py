"""The figures of a study's page: SVG text that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

__all__ = ["Line", "Point", "draw_lines", "draw_picture", "draw_points", "look"]

_COLOURS = (
    "#3b82d6", "#e07b1a", "#2f9e5b", "#d64545", "#9467d6", "#a0714f", "#d65fa8", "#7f8794",
    "#a3a322", "#1ba3b5",
)  # fmt: skip
"""Of things by number; all of them can be told from white and from black."""
_DASHES = ("", "6 2", "2 2")
"""Line patterns of the first ten, the next ten and the rest."""
_MARKERS = "os^"
"""Shapes of their points."""
_INK = "#010203"  # becomes the page's own text colour
_WIDTH_IN, _HEIGHT_IN = 5.4, 3.7
_BESIDE = tuple((x, y) for y in (9, -9, 18, -18, 27, -27) for x in (10, -10))
"""Where a point's number may stand, in points of a print from it, the nearest first."""


@dataclass(frozen=True)
class Line:
    """A curve with a band around it."""

    number: int
    """Which colour and pattern."""
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scripted: str = ""
    """Name of a scripted policy, which is drawn dotted in the page's text colour."""


@dataclass(frozen=True)
class Point:
    """An arm's cost and reward."""

    number: int
    x: float
    y: float
    low: float
    high: float
    on_front: bool = False


def _begin(xlabel: str, ylabel: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
    axis = figure.subplots()
    axis.set_xlabel(xlabel, color=_INK, parse_math=False)
    axis.set_ylabel(ylabel, color=_INK, parse_math=False)
    axis.tick_params(which="both", colors=_INK)
    axis.grid(alpha=0.2, color=_INK)
    for name, spine in axis.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(_INK)
    axis.patch.set_alpha(0)
    figure.patch.set_alpha(0)
    return figure, axis


def _finish(figure: Any, title: str) -> str:
    """The figure as SVG that scales with its box and names itself to readers of the screen."""
    import matplotlib

    text = io.StringIO()
    settings: Any = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s(xmlns(:xlink)?)="[^"]*"', "", svg, count=2)  # HTML knows both
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    salt = re.sub(r"\W+", "-", title)  # ids must differ between the figures of a page
    svg = re.sub(r'id="([^"]+)"', rf'id="{salt}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{salt}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{salt}-\1)", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def look(number: int) -> tuple[str, str, str]:
    """Colour, line pattern and shape of a point of the thing with this number."""
    of_ten, place = divmod(number, len(_COLOURS))
    kind = min(of_ten, len(_DASHES) - 1)
    return _COLOURS[place], _DASHES[kind], _MARKERS[kind]


def _style(number: int) -> dict[str, Any]:
    colour, dashes, _ = look(number)
    pattern = (0, tuple(float(part) for part in dashes.split())) if dashes else "-"
    return {"color": colour, "linestyle": pattern}


def _mark(number: int) -> dict[str, Any]:
    colour, _, shape = look(number)
    return {"color": colour, "marker": shape}


def draw_lines(
    lines: Sequence[Line], title: str, xlabel: str, ylabel: str, share: bool = False
) -> str:
    """Curves with bands as SVG; with `share` the vertical axis is from 0 to 1."""
    figure, axis = _begin(xlabel, ylabel)
    for line in lines:
        style = {"color": _INK, "linestyle": ":"} if line.scripted else _style(line.number)
        few = len(line.x) <= 15
        axis.plot(line.x, line.y, **style, linewidth=1.6, marker="o" if few else "", markersize=3)
        axis.fill_between(
            line.x,
            line.low,
            line.high,
            color=style["color"],
            alpha=0.05 if line.scripted else 0.13,
            lw=0,
        )
        if line.scripted:
            axis.annotate(
                line.scripted, (line.x[-1], line.y[-1]), textcoords="offset points",
                xytext=(0, 4), ha="right", color=_INK, fontsize=8,
            )  # fmt: skip
    if all((line.x == np.round(line.x)).all() for line in lines):
        axis.xaxis.get_major_locator().set_params(integer=True)
    if share:
        axis.set_ylim(-0.03, 1.05)
    return _finish(figure, title)


def draw_points(
    points: Sequence[Point], title: str, xlabel: str, ylabel: str, across: dict[str, float]
) -> str:
    """Cost against reward as SVG, numbered as in the legend; `across` are dashed levels by
    name, where they are near.

    Arms without cost are drawn beside each other on the left, where the axis is labelled none.
    """
    figure, axis = _begin(xlabel, ylabel)
    _scatter(axis, points, across)
    return _finish(figure, title)


def draw_picture(
    points: Sequence[Point], names: Sequence[str], xlabel: str, ylabel: str,
    across: dict[str, float],
) -> bytes:  # fmt: skip
    """The same as a PNG on white, with the points' names beside it."""
    from matplotlib.lines import Line2D

    figure, axis = _begin(xlabel, ylabel)
    figure.set_size_inches(_WIDTH_IN + 2.6, _HEIGHT_IN)
    handles = [
        Line2D([], [], **_mark(point.number), linestyle="", label=f"{point.number + 1}. {name}")
        for point, name in zip(points, names, strict=True)
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
    _scatter(axis, points, across)
    figure.patch.set(facecolor="white", alpha=1)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150, metadata={"Software": None})
    return data.getvalue()


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
        axis.plot(*zip(*front, strict=True), color=_INK, linewidth=1, alpha=0.6, zorder=0)
        axis.plot(
            *zip(*front, strict=True), "o", markersize=12, markerfacecolor="none", color=_INK,
            markeredgewidth=1,
        )  # fmt: skip
    bottom, top = axis.get_ylim()
    for name, level in across.items():
        if not bottom - (top - bottom) < level < top + (top - bottom):
            continue  # it would press the arms together
        axis.axhline(level, color=_INK, linewidth=0.8, linestyle="--", alpha=0.6)
        axis.annotate(
            name, (1, level), xycoords=("axes fraction", "data"), textcoords="offset points",
            xytext=(4, 0), va="center", color=_INK, fontsize=8,
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
    axis.axvline(least / step, color=_INK, linewidth=0.6, linestyle=":")
    axis.annotate(
        "none", (least / step ** (1.5 + len(free) / 2), 0), ha="center", color=_INK, fontsize=8,
        xycoords=("data", "axes fraction"), textcoords="offset points", xytext=(0, 3),
    )  # fmt: skip
    left = {number: least / step**rank for rank, number in enumerate(reversed(free), 2)}
    return [replace(point, x=left.get(point.number, point.x)) for point in points]


def _number_points(axis: Any, points: Sequence[Point]) -> None:
    """A number beside each point, where none before it stands."""
    from matplotlib.transforms import Bbox

    axis.figure.draw_without_rendering()  # only now is it known where things will lie
    taken = [
        Bbox.from_extents(x - 6, y - 6, x + 6, y + 6)
        for x, y in axis.transData.transform([(point.x, point.y) for point in points])
    ]
    for point in points:
        for offset in _BESIDE:
            label = axis.annotate(
                str(point.number + 1), (point.x, point.y), xytext=offset,
                textcoords="offset points", ha="center", va="center", color=_INK, fontsize=9,
            )  # fmt: skip
            box = label.get_window_extent()
            if offset == _BESIDE[-1] or not box.count_overlaps(taken):
                taken.append(box)
                break
            label.remove()
