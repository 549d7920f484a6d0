"""Reports in HTML: one template, and the parts that fill it."""

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from training.reports.figures import look

_OUTLINES = {
    "o": "M9 5a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "s": "M9.5 1.5h7v7h-7z",
    "^": "M13 1l4.5 8h-9z",
}
"""Outlines of the points' shapes in a legend."""
_MOST_MISSING = 200


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template(name)


def _part(name: str, *content: Any) -> Markup:
    """A macro of parts.html, filled."""
    return Markup(getattr(_template("parts.html").module, name)(*content))


class Section(NamedTuple):
    """A heading and the parts below it."""

    title: str
    """Empty: no heading."""
    parts: Sequence[Any]
    """Tables and `Markup`; None is left out."""
    folded: bool = False
    """Whether the reader unfolds it."""


def page(
    title: str, first: Markup | str | None, verdict: Sequence[str],
    sections: Sequence[Section | None], scene: str = "",
) -> str:  # fmt: skip
    """A whole page that loads nothing from elsewhere. Text is escaped, `Markup` is not.

    Args:
        title: its heading.
        first: the figure that it opens with.
        verdict: at most three lines on the findings. sections: in order; None is left out, and so
        is one without parts. scene: an image of the task, WebP in base64.
    """
    filled = [(one, [part for part in one.parts if part]) for one in sections if one is not None]
    shown = [one._replace(parts=parts) for one, parts in filled if parts]
    text = _template("report.html").render(
        title=title, first=first, verdict=verdict, scene=scene, sections=shown
    )
    return _with_classes(text)


def _with_classes(page: str) -> str:
    """A page with the styles of its figures in its head, each of them once."""
    names: dict[str, str] = {}

    def named(style: re.Match[str]) -> str:
        return f' class="{names.setdefault(style[1], f"s{len(names)}")}"'

    page = re.sub(r'(?<=[\w"]) style="([^"<>]*)"', named, page)
    rules = "".join(f".{name}{{{style}}}\n" for style, name in names.items())
    return page.replace("</style>", f"{rules}</style>", 1)


def image(path: Path | None) -> str:
    """A file in base64; empty if there is none."""
    return base64.b64encode(path.read_bytes()).decode() if path and path.is_file() else ""


def note(*sentences: str | None) -> Markup | None:
    """A paragraph in small print, without the sentences that are None or empty."""
    text = Markup(" ").join(sentence for sentence in sentences if sentence)
    return Markup('<p class="note">{}</p>').format(text) if text else None


def bullets(lines: Iterable[str]) -> Markup | None:
    """A list; None without lines."""
    items = list(lines)
    return _part("bullets", items) if items else None


def pre(text: str) -> Markup:
    """Preformatted text, such as a command."""
    return Markup("<pre>{}</pre>").format(text)


def charts(drawn: Sequence[str]) -> Markup | None:
    """Figures beside each other; None without any."""
    return _part("charts", drawn) if drawn else None


def legend(names: Sequence[str]) -> Markup:
    """Numbers and names with the colours, line patterns and shapes that figures give them."""
    styles = [(*look(number), name) for number, name in enumerate(names)]
    return _part("legend", [(c, dash, _OUTLINES[shape], name) for c, dash, shape, name in styles])


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
        return _part("table", *self)


Column = tuple[str, str, Callable[[Any], Any]]
"""Title, unit or remark, and the content of a row's cell."""


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
    """A count of FLOPs in millions, with enough digits to distinguish policies."""
    return f"{count / 1e6:.3f}" if count else "0"
