"""Marks of a figure, such as an error bar's caps or a curve's dots, as paths where they stand.

matplotlib draws a mark once and refers to it from each place, in five times as many characters.
"""

import re
from xml.etree import ElementTree

__all__ = ["inline"]

_CLEAR = {"opacity", "stroke-opacity"}
"""Properties with which marks that overlap are darker where they do."""
_NUMBER = r"-?\d+(?:\.\d+)?"
_LINE = re.compile(rf"(?:[ML] {_NUMBER} {_NUMBER} )+")
_ARC = rf"C {_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} "
_CIRCLE = re.compile(rf"M 0 ({_NUMBER}) (?:{_ARC}){{8}}z ")


def inline(root: ElementTree.Element) -> None:
    """Replace references to marks that are lines, or dots of one colour, by paths in place."""
    marks = {part.get("id"): part for part in root.iter("path") if part.get("id")}
    left: set[str] = set()
    for parent in [*root.iter()]:
        for at, part in enumerate([*parent]):
            if part.tag != "use":
                continue
            name = part.get("href", "").removeprefix("#")
            path = _placed(part, marks[name]) if name in marks else None
            if path is None:
                left.add(name)
            else:
                parent[at] = path
    for parent in [*root.iter("defs")]:
        parent[:] = [part for part in parent if part.get("id") not in marks.keys() - left]


def _placed(use: ElementTree.Element, mark: ElementTree.Element) -> ElementTree.Element | None:
    style = _read(use.get("style", "")) | _read(mark.get("style", ""))
    x, y = float(use.get("x", 0)), float(use.get("y", 0))
    text = " ".join(mark.get("d", "").split()) + " "
    points = re.findall(rf"([ML]) ({_NUMBER}) ({_NUMBER})", text) if _LINE.fullmatch(text) else []
    circle = _CIRCLE.fullmatch(text)
    fill, stroke = style.get("fill"), style.get("stroke", "none")
    if stroke == "none" or _CLEAR & {*style}:
        return None
    if points and (fill == "none" or "".join(what for what, *_ in points) in ("ML", "MLML")):
        d = "".join(f"{what} {x + float(dx)} {y + float(dy)} " for what, dx, dy in points)
    elif circle and fill == stroke and not {"fill-opacity", "stroke-dasharray"} & {*style}:
        d = f"M {x} {y} L {x} {y} "
        width = 2 * float(circle[1]) + float(style.get("stroke-width", 1))
        style |= {"stroke-width": f"{width:g}", "stroke-linecap": "round"}
    else:
        return None
    style.pop("fill-opacity", None)
    style["fill"] = "none"
    told = "; ".join(f"{key}: {style[key]}" for key in sorted(style))
    return ElementTree.Element("path", {"d": d.strip(), "style": told})


def _read(style: str) -> dict[str, str]:
    pairs = (part.split(":", 1) for part in style.split(";") if part.strip())
    return {key.strip(): value.strip() for key, value in pairs}
