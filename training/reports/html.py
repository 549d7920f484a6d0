"""Reports in HTML: one template, and the parts that fill it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from training.reports.figures import look
from training.reports.svg import share_styles

__all__ = [
    "Column", "Section", "Table", "around", "between", "bullets", "charts", "image", "joined",
    "legend", "millions", "note", "page", "pre", "sections_of_state", "table_of",
]  # fmt: skip

_OUTLINES = {
    "o": "M 9 5 a 4 4 0 1 0 8 0 a 4 4 0 1 0 -8 0", "s": "M 9.5 1.5 h 7 v 7 h -7 z",
    "^": "M 13 1 l 4.5 8 h -9 z",
}  # fmt: skip
"""Outlines of the points' shapes in a legend."""
_MOST_MISSING = 200


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("report.html")


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    """Empty: no heading."""
    parts: Sequence[Any]
    """Tables and `Markup`; None is left out."""
    folded: bool = False
    """Whether the reader unfolds it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", [part for part in self.parts if part])


def page(
    title: str, first: Markup | str | None, verdict: Sequence[str],
    sections: Sequence[Section | None], scene: str = "",
) -> str:  # fmt: skip
    """A whole page that loads nothing from elsewhere. Text is escaped, `Markup` is not.

    Args:
        title: its heading.
        first: the figure that it opens with.
        verdict: at most three lines on what was found.
        sections: in order; None is left out.
        scene: an image of the task, WebP in base64.
    """
    shown = [one for one in sections if one is not None and one.parts]
    parts = {"title": title, "first": first, "verdict": verdict, "scene": scene}
    return share_styles(_template().render(parts | {"sections": shown}))


def image(path: Path | None) -> str:
    """A file in base64; nothing where there is none."""
    return base64.b64encode(path.read_bytes()).decode() if path and path.is_file() else ""


def note(*sentences: str | None) -> Markup | None:
    """A paragraph in small print, without the sentences that are None or empty."""
    text = joined(*sentences)
    return Markup('<p class="note">{}</p>').format(text) if text else None


def joined(*sentences: str | None) -> str | Markup:
    """Sentences as one text."""
    return Markup(" ").join(sentence for sentence in sentences if sentence)


def bullets(lines: Iterable[str]) -> Markup | None:
    """A list; None without lines."""
    items = Markup("").join(Markup("<li>{}</li>").format(line) for line in lines)
    return Markup("<ul>{}</ul>").format(items) if items else None


def pre(text: str) -> Markup:
    """Text as it is, such as a command."""
    return Markup("<pre>{}</pre>").format(text)


def charts(drawn: Sequence[str]) -> Markup:
    """Figures beside each other."""
    figures = Markup("").join(Markup("<figure>{}</figure>").format(one) for one in drawn)
    return Markup('<div class="charts">{}</div>').format(figures) if drawn else Markup("")


def legend(names: Sequence[str]) -> Markup:
    """Numbers and names with the colours, line patterns and shapes that figures give them."""
    items = []
    for number, name in enumerate(names):
        colour, dash, shape = look(number)
        items.append(
            Markup(
                '<li><svg width="26" height="10" aria-hidden="true"><line x1="0" y1="5" x2="26" '
                'y2="5" stroke-width="2" stroke="{}" stroke-dasharray="{}"/><path d="{}" '
                'fill="{}"/></svg>{}. {}</li>'
            ).format(colour, dash, _OUTLINES[shape], colour, number + 1, name)
        )
    return Markup('<ul class="legend">{}</ul>').format(Markup("\n").join(items))


def sections_of_state(
    noun: str, missing: Sequence[str], failed: Sequence[str]
) -> tuple[list[str], list[Section]]:
    """Lines of the verdict and folded sections on jobs that are missing, or failed."""
    if not missing:
        return [], []
    failures = f", {len(failed)} of them failed when it was last run" if failed else ""
    line = (
        f"The {noun} is not finished: {len(missing)} of its parts are missing{failures}. "
        "All figures are over the finished ones."
    )
    named = [*missing[:_MOST_MISSING], *(["..."] if len(missing) > _MOST_MISSING else [])]
    return [line], [
        Section("Failed parts", [bullets(failed)], folded=True),
        Section("Missing parts", [bullets(named)], folded=True),
    ]


class Table(NamedTuple):
    """A table, shown as HTML."""

    head: Sequence[tuple[str, str]]
    """Title of every column, and its unit or a remark."""
    rows: Sequence[Sequence[Any]]
    text: int = -1
    """The column whose cells may be long."""

    def __html__(self) -> str:
        def cell(tag: str, at: int, content: Any) -> Markup:
            kind = Markup(' class="text"') if at == self.text else ""
            return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), kind, content)

        def row(tag: str, cells: Sequence[Any]) -> Markup:
            return Markup("").join(cell(tag, at, one) for at, one in enumerate(cells))

        small = Markup("{}<small>{}</small>")
        titles = [small.format(title, unit) if unit else title for title, unit in self.head]
        lines = Markup("\n").join(
            Markup("<tr>{}</tr>").format(row("td", cells)) for cells in self.rows
        )
        return Markup(
            '<div class="wide" tabindex="0"><table>\n<thead><tr>{}</tr></thead>\n'
            "<tbody>\n{}\n</tbody></table></div>"
        ).format(row("th", titles), lines)


Column = tuple[str, str, Callable[[Any], Any]]
"""Title, unit or remark, and what a row's cell shows."""


def table_of(columns: Sequence[Column], rows: Iterable[Any], text: int = -1) -> Table:
    """The table of some rows."""
    cells = [[cell(row) for *_, cell in columns] for row in rows]
    return Table([(title, unit) for title, unit, _ in columns], cells, text)


def between(value: str, low: str, high: str) -> Markup:
    """A value, and in small print below it its interval."""
    return Markup("{} <small>{} to {}</small>").format(value, low, high)


def around(value: float | None, interval: tuple[float, float] | None, form: str = ".3f") -> str:
    """A number and its interval, alike; the number alone without interval, a dash without both."""
    if value is None:
        return "-"
    shown = format(value, form)
    return shown if interval is None else between(shown, *(format(end, form) for end in interval))


def millions(count: float) -> str:
    """A count of FLOPs in millions, as exact as it takes to tell policies apart."""
    return f"{count / 1e6:.3f}" if count else "0"
