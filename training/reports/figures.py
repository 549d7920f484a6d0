"""What the figures of a page have in common: sizes, colours, ticks and legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.reports.plots import shown
from training.reports.svg import INK

__all__ = ["HEIGHT_IN", "WIDTH_IN", "dress", "empty", "look", "name_all", "single"]

_COLOURS = (
    "#3b82d6", "#e07b1a", "#2f9e5b", "#d64545", "#9467d6", "#a0714f", "#d65fa8", "#7f8794",
    "#a3a322", "#1ba3b5",
)  # fmt: skip
"""Of things by number; all of them can be told from white and from black."""
_DASHES = ("", "6 2", "2 2")
"""Line patterns of the first ten, the next ten and the rest."""
_MARKERS = "os^"
"""Shapes of their points."""
WIDTH_IN, HEIGHT_IN = 5.4, 3.7


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
    axis.grid(alpha=0.2, color=INK, clip_on=False)
    for name, spine in axis.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
    axis.patch.set_visible(False)


def single(xlabel: str, ylabel: str) -> tuple[Any, Any]:
    """A figure and its one axis."""
    figure = empty(WIDTH_IN, HEIGHT_IN)
    axis = figure.subplots()
    axis.set_xlabel(xlabel, color=INK, parse_math=False)
    axis.set_ylabel(ylabel, color=INK, parse_math=False)
    dress(axis)
    return figure, axis


def name_all(figure: Any, handles: Sequence[Any], names: Sequence[str], **settings: Any) -> None:
    """A legend of names as they are: no mathematics between dollars, none left out for a leading
    underscore."""
    figure.legend(handles, list(map(shown, names)), frameon=False, fontsize=9, **settings)


def look(number: int) -> tuple[str, str, str]:
    """Colour, line pattern and shape of a point of the thing with this number."""
    of_ten, place = divmod(number, len(_COLOURS))
    kind = min(of_ten, len(_DASHES) - 1)
    return _COLOURS[place], _DASHES[kind], _MARKERS[kind]
