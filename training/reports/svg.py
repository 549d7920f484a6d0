"""A figure as SVG for a page: in the page's colours and font, and as small as it can be.

matplotlib names every part, repeats every style, and writes six decimals of a point; of all that a
page needs little.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from training.reports import svg_marks

__all__ = ["INK", "finish", "share_styles"]

INK = "#010203"
"""Becomes the page's own text colour."""
_PLACES = {"d", "x", "y", "width", "height", "viewBox", "transform"}
"""Attributes that hold lengths in points: one decimal is enough."""
_TOLERANCE = 1.5
"""Tenths of a point that a curve may be moved by, which no screen shows."""
_GATHERED = ("use", "text")
_FONT = re.compile(r"font-family: [^;]*;? ?")
_POINT = re.compile(r"M[\d. -]*")
_NAMED = re.compile(r"(?<=#)[\w.-]+")


def finish(figure: Any, title: str, kind: str = "") -> Markup:
    """The figure as SVG that scales with its box and names itself to readers of the screen.

    `title` must differ between a page's figures; `kind` is its class in the page's style.
    """
    import matplotlib

    text = io.StringIO()
    settings: Any = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue().replace(INK, "currentColor").replace("xlink:href", "href")
    root = ElementTree.fromstring(re.sub(r'xmlns="[^"]*"', "", svg))
    svg_marks.inline(root)
    salt = hashlib.sha256(title.encode()).hexdigest()[:6]
    used = {name for part in root.iter() for name in _links(part)}
    names = {name: f"{salt}-{i}" for i, name in enumerate(sorted(used))}
    styles: dict[str, str] = {}
    for part in root.iter():
        _shorten(part, names, styles)
    _flatten(root)
    _join(root, {name for text, name in styles.items() if _is_bare_line(text)})
    _gather(root)
    style = ElementTree.Element("style")
    style.text = "".join(f".{name}{{{text}}}" for text, name in styles.items())
    root.insert(0, style)
    root.attrib = {"role": "img", "aria-label": title, "viewBox": root.attrib["viewBox"]}
    if kind:
        root.set("class", kind)
    return Markup(ElementTree.tostring(root, encoding="unicode").replace(" />", "/>"))


def share_styles(page: str) -> str:
    """A page with its figures' styles in its head, each of them once."""
    found = "".join(re.findall(r"<svg[^>]*><style>(.*?)</style>", page))
    page = re.sub(r"(<svg[^>]*>)<style>.*?</style>", r"\1", page)
    rules = "\n".join(dict.fromkeys(re.findall(r"[^}]*\}", found)))
    return page.replace("</style>", f"{rules}\n</style>", 1)


def _links(part: ElementTree.Element) -> list[str]:
    """The names of other parts in its attributes."""
    return [
        name
        for key, value in part.attrib.items()
        if key == "href" or value.startswith("url(#")
        for name in _NAMED.findall(value)
    ]


def _shorten(part: ElementTree.Element, names: dict[str, str], styles: dict[str, str]) -> None:
    """Short names where a name is needed, a class in place of a style, few decimals."""
    found = part.attrib
    if "id" in found:
        name = names.get(found.pop("id"))
        part.attrib = found = ({"id": name} if name else {}) | found
    for key, value in found.items():
        if key == "href" or value.startswith("url(#"):
            found[key] = _NAMED.sub(lambda name: names[name[0]], value)
        elif key in _PLACES:
            value = re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), value)
            if key == "d":
                value = re.sub(r"\s*([A-Za-z])\s*", r"\1", value).rstrip()
                value = _stepped(value)
            found[key] = value
    if found.get("transform", "").startswith("rotate(-0 "):
        del found["transform"]
    style = _FONT.sub("", found.pop("style", "")).strip().rstrip(";").replace(": ", ":")
    if style:
        own = f"s{hashlib.sha256(style.encode()).hexdigest()[:5]}"
        found["class"] = styles.setdefault(style.replace("; ", ";"), own)
    if part.tag != "text":
        part.text = None
    part.tail = None


def _stepped(path: str) -> str:
    """Straight lines from point to point as steps, in which most digits are of the first point."""
    if not re.fullmatch(r"[MLz\d. -]*", path):
        return path
    text = ""
    for points, closed in re.findall(r"M([^Mz]*)(z?)", path):
        tenths = [round(10 * float(number)) for number in re.findall(r"[\d.-]+", points)]
        (x, y), *rest = _simplified(list(zip(tenths[::2], tenths[1::2], strict=True)))
        text += f"M{_decimal(x)} {_decimal(y)}"
        before = "M"
        for to_x, to_y in rest:
            dx, dy = to_x - x, to_y - y
            command, steps = ("h", (dx,)) if not dy else ("l", (dx, dy)) if dx else ("v", (dy,))
            words = " ".join(map(_decimal, steps))
            text += (" " if command == before else command) + words
            x, y, before = to_x, to_y, command
        text += closed
    return text.replace(" -", "-")


def _simplified(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The points without those that lie on a line between others, to `_TOLERANCE` (Ramer 1972,
    Douglas and Peucker 1973)."""
    kept, open_ = {0, len(points) - 1}, [(0, len(points) - 1)]
    while open_:
        first, last = open_.pop()
        (x0, y0), (x1, y1) = points[first], points[last]
        length = math.hypot(x1 - x0, y1 - y0)
        far, place = _TOLERANCE, 0
        for i in range(first + 1, last):
            x, y = points[i][0] - x0, points[i][1] - y0
            away = abs(x * (y1 - y0) - y * (x1 - x0)) / length if length else math.hypot(x, y)
            if away > far:
                far, place = away, i
        if place:
            kept.add(place)
            open_ += [(first, place), (place, last)]
    return [points[i] for i in sorted(kept)]


def _decimal(tenths: int) -> str:
    """As few characters as say it: -5 is -.5."""
    whole, rest = divmod(abs(tenths), 10)
    sign = "-" if tenths < 0 else ""
    return f"{sign}{whole or ''}.{rest}" if rest else f"{sign}{whole}"


def _flatten(part: ElementTree.Element) -> None:
    """Take away what draws nothing: bare groups around parts, descriptions, empty definitions."""
    for child in part:
        _flatten(child)
    part[:] = list(_drawn(part))


def _is_bare_line(style: str) -> bool:
    """Whether paths of a style have no area. Joined ones look the same, but where lines that are
    seen through cross, which is no darker then."""
    return "fill:none" in style


def _join(part: ElementTree.Element, lines: Collection[str]) -> None:
    """Paths of one style among `lines` become one where only words are between them, such as those
    of a grid, whose words are beside it."""
    kept: list[ElementTree.Element] = []
    for child in part:
        _join(child, lines)
        drawn = (one for one in reversed(kept) if one.tag != "text")
        before = next((one.attrib for one in drawn), {})
        alike = child.tag == "path" and child.attrib | {"d": ""} == before | {"d": ""}
        if alike and child.get("class") in lines:
            before["d"] += child.attrib["d"]
        else:
            kept.append(child)
    part[:] = kept


def _gather(part: ElementTree.Element) -> None:
    """Neighbouring marks, and words, of one style become a group that names it once."""
    kept: list[ElementTree.Element] = []
    for _, alike in groupby(part, lambda child: (child.tag, child.get("class"))):
        children = list(alike)
        if len(children) > 1 and children[0].tag in _GATHERED and "class" in children[0].attrib:
            group = ElementTree.Element("g", {"class": children[0].attrib["class"]})
            for child in children:
                del child.attrib["class"]
            group.extend(children)
            children = [group]
        kept += children
    for child in part:
        _gather(child)
    part[:] = kept


def _drawn(part: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for child in part:
        if child.tag == "g" and not child.attrib:
            yield from _drawn(child)
        elif not _is_blank(child):
            yield child


def _is_blank(part: ElementTree.Element) -> bool:
    """Whether a part without parts of its own draws nothing, as a path of one point."""
    path = part.get("d") if part.tag == "path" else None
    if path is not None:
        return bool(_POINT.fullmatch(path))
    return part.tag in ("metadata", "style") or (part.tag == "defs" and not len(part))
