"""What all figures of a study's page have in common: SVG that takes its colours from the page.

The figures themselves are drawn by `lines` and `scatter`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from training.pages.plots import shown

__all__ = ["HEIGHT_IN", "INK", "WIDTH_IN", "dress", "empty", "finish", "look", "name_all", "single"]

_COLOURS = (
    "#3b82d6", "#e07b1a", "#2f9e5b", "#d64545", "#9467d6", "#a0714f", "#d65fa8", "#7f8794",
    "#a3a322", "#1ba3b5",
)  # fmt: skip
"""Of things by number; all of them can be told from white and from black."""
_DASHES = ("", "6 2", "2 2")
"""Line patterns of the first ten, the next ten and the rest."""
_MARKERS = "os^"
"""Shapes of their points."""
INK = "#010203"
"""Becomes the page's own text colour."""
WIDTH_IN, HEIGHT_IN = 5.4, 3.7


def empty(width_in: float, height_in: float) -> Any:
    """A transparent figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def dress(axis: Any, size: float = 10) -> None:
    """Ticks, grid and two spines in the page's text colour; `size` of the tick labels in points."""
    axis.tick_params(which="both", colors=INK, labelsize=size)
    axis.grid(alpha=0.2, color=INK)
    for name, spine in axis.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
    axis.patch.set_alpha(0)


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


def finish(figure: Any, title: str, kind: str = "") -> str:
    """The figure as SVG that scales with its box and names itself to readers of the screen.

    `kind` is its class in the page's style.
    """
    import matplotlib

    text = io.StringIO()
    settings: Any = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s(xmlns(:xlink)?)="[^"]*"', "", svg, count=2)  # HTML knows both
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    salt = re.sub(r"\W+", "-", title)  # ids must differ between the figures of a page
    svg = re.sub(r'id="([^"]+)"', rf'id="{salt}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{salt}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{salt}-\1)", svg)
    named = f'role="img" aria-label="{escape(title)}"' + (f' class="{kind}"' if kind else "")
    return svg.replace("<svg", f"<svg {named}", 1)


def look(number: int) -> tuple[str, str, str]:
    """Colour, line pattern and shape of a point of the thing with this number."""
    of_ten, place = divmod(number, len(_COLOURS))
    kind = min(of_ten, len(_DASHES) - 1)
    return _COLOURS[place], _DASHES[kind], _MARKERS[kind]
