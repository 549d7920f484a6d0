"""Pages of HTML: templates of Jinja, beside this file, and the tables and cells that fill them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from training.reports.svg import share_styles

__all__ = ["Column", "Table", "around", "between", "millions", "page", "table_of"]


@cache
def _templates(*folders: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader([Path(__file__).parent, *folders]),
        autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def page(template: str | Path, **parts: Any) -> str:
    """A whole page that loads nothing from elsewhere. Text is escaped, `Markup` is not.

    `template` is one of this folder by its name, or another one by its path.
    """
    place = Path(template)
    templates = _templates(place.parent) if place.is_absolute() else _templates()
    return share_styles(templates.get_template(place.name).render(parts))


class Table(NamedTuple):
    """A table, which templates show as HTML."""

    head: Sequence[tuple[str, str]]
    """Title of every column, and its unit or a remark."""
    rows: Sequence[Sequence[Any]]
    text: int = -1
    """The column whose cells may be long."""

    def __html__(self) -> str:
        return _templates().get_template("table.html").render(table=self)


Column = tuple[str, str, Callable[[Any], Any]]
"""Title, unit or remark, and what a row's cell shows."""


def table_of(columns: Sequence[Column], rows: Iterable[Any], text: int = -1) -> Table:
    """The table of some rows."""
    cells = [[cell(row) for *_, cell in columns] for row in rows]
    return Table([(title, unit) for title, unit, _ in columns], cells, text)


def between(value: str, low: str, high: str) -> Markup:
    """A value, and in small print below it the interval that it lies in."""
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
