"""A matplotlib figure as a small SVG in a page's colours and font.

matplotlib writes an element for every line and mark, each with its style and six decimals. Here all
lines and areas of one style are one path of relative steps, and all labels of one style a group.
"""

import io
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

INK = "#010203"
"""Replaced by the page's text colour."""
_UNITS = 3
"""Units of the SVG in a point of print; coordinates are integers."""
_TOLERANCE = 0.5
"""Largest distance of a curve from its points, in units: with rounding, half a pixel of a page."""
_LENGTHS = ("font-size", "stroke-width", "stroke-dasharray", "stroke-dashoffset")
Piece = tuple[str, np.ndarray]
"""A command, one of M, L, Q, C and z, and its points (n, 2) in units."""


def finish(figure: Any, title: str, kind: str = "") -> Markup:
    """The figure as SVG that scales with its box and has its title as its accessible name.

    Nothing is clipped, and parts of one style are drawn together, at the place of the first. `kind`
    is the figure's class in the page's style."""
    import matplotlib

    for artist in figure.findobj():
        artist.set_clip_on(False)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(text, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format"]))
    svg = text.getvalue().replace(INK, "currentColor").replace("xlink:href", "href")
    root = ElementTree.fromstring(re.sub(r'xmlns="[^"]*"', "", svg))
    paths: dict[str, list[Piece]] = defaultdict(list)
    for style, pieces in _paths(root):
        paths[_style(style)] += pieces
    labels: dict[str, Markup] = defaultdict(Markup)
    for label in root.iter("text"):
        labels[_style(label.get("style", ""))] += _placed(label)
    size = " ".join(f"{_UNITS * float(n):.0f}" for n in root.attrib["viewBox"].split())
    start = Markup('<svg role="img" aria-label="{}" viewBox="{}"').format(title, size)
    drawn = [start + (Markup(' class="{}">').format(kind) if kind else Markup(">"))]
    for style, pieces in paths.items():
        drawn.append(Markup('<path d="{}" style="{}"/>').format(_encoded(pieces), style))
    for style, words in labels.items():
        drawn.append(Markup('<g style="{}">{}</g>').format(style, words))
    return Markup().join([*drawn, Markup("</svg>")])


def _placed(label: ElementTree.Element) -> Markup:
    """A label at integer coordinates. Some rotated labels have a translation instead."""
    transform = label.get("transform", "")
    moved = re.match(r"translate\((\S+) (\S+)\)", transform)
    exact = moved.groups() if moved else (label.get("x", 0), label.get("y", 0))
    x, y = (round(_UNITS * float(length)) for length in exact)
    turned = re.search(r"rotate\((-?[1-9]\d*)", transform)
    turn = f' transform="rotate({turned[1]} {x} {y})"' if turned else ""
    return Markup('<text x="{}" y="{}"{}>{}</text>').format(x, y, Markup(turn), label.text)


def _paths(root: ElementTree.Element) -> Iterator[tuple[str, list[Piece]]]:
    """The style and the pieces of each path in the order of drawing, marks in their places."""
    marks = {f"#{one.get('id')}": one for one in root.iterfind(".//defs/path")}
    for part in root.iter():
        if part.tag == "path" and f"#{part.get('id')}" not in marks:
            yield part.get("style", ""), _pieces(part)
        elif part.tag == "use":
            mark = marks[part.get("href", "")]
            style = _rules(f"{mark.get('style', '')};{part.get('style', '')}")
            pieces = _pieces(mark)
            if "C" in dict(pieces) and style.get("fill") == style.get("stroke"):  # a dot
                width = 2 * pieces[0][1].max() / _UNITS + float(style.get("stroke-width", 1))
                style |= {"fill": "none", "stroke-width": f"{width:g}", "stroke-linecap": "round"}
                pieces = [("M", np.zeros((2, 2)))]
            at = _UNITS * np.array([float(part.get(key, 0)) for key in "xy"])
            yield _joined(style), [(command, points + at) for command, points in pieces]


def _pieces(path: ElementTree.Element) -> list[Piece]:
    """The pieces of a path, lines from point to point as one."""
    pieces: list[Piece] = []
    for command, numbers in re.findall("([MLQCz])([^MLQCz]*)", path.get("d", "")):
        points = _UNITS * np.array(numbers.split(), float).reshape(-1, 2)
        if command == "L" and pieces[-1][0] in "ML":
            pieces[-1] = pieces[-1][0], np.concatenate((pieces[-1][1], points))
        else:
            pieces.append((command, points))
    return pieces


def _rules(style: str) -> dict[str, str]:
    pairs = (rule.split(":", 1) for rule in style.split(";") if rule.strip())
    return {key.strip(): value.strip() for key, value in pairs}


def _joined(rules: dict[str, str]) -> str:
    return ";".join(f"{key}:{rules[key]}" for key in sorted(rules))


def _style(style: str) -> str:
    """A style without fonts, its lengths in units."""
    rules = {"stroke-width": "1"} if "stroke:" in style else {}
    rules |= _rules(style)
    rules.pop("font-family", None)
    for key in rules.keys() & {*_LENGTHS}:
        rules[key] = re.sub(r"[\d.]+", lambda n: f"{_UNITS * float(n[0]):.3g}", rules[key])
    return _joined(rules)


def _encoded(pieces: list[Piece]) -> str:
    """The attribute d of a path: steps from each point to the next."""
    text, start, at = "", np.zeros(2, int), np.zeros(2, int)
    for command, exact in pieces:
        if command == "z":
            text, at = text + "z", start
            continue
        points = np.rint(_thinned(exact) if command == "M" else exact).astype(int)
        if command == "M":
            steps, start = np.diff(points, axis=0, prepend=[at]), points[0]
        else:  # control points are relative to the first point of their curve
            count = {"L": 1, "Q": 2, "C": 3}[command]
            firsts = np.concatenate(([at], points[count - 1 : -1 : count]))
            steps = points - np.repeat(firsts, count, axis=0)
        text += command.lower() + " ".join(map(str, steps.ravel()))
        at = points[-1]
    return text.replace(" -", "-")


def _thinned(points: np.ndarray) -> np.ndarray:
    """The points of a line (n, 2) without those that do not change it by more than `_TOLERANCE`
    (Ramer 1972, Douglas and Peucker 1973)."""
    away, along = points - points[0], points[-1] - points[0]
    length = np.linalg.norm(along)
    if length > 0:
        away = away[:, :1] * along[1] - away[:, 1:] * along[0]
    distances = np.linalg.norm(away, axis=1) / (length or 1)
    far = int(distances.argmax())
    if distances[far] <= _TOLERANCE:
        return points[[0, -1]] if len(points) > 1 else points
    return np.concatenate((_thinned(points[: far + 1])[:-1], _thinned(points[far:])))
