"""Pieces of a page: its frame, tables, their cells and notes as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = [
    "between",
    "document",
    "millions",
    "note",
    "table",
]

_STYLE = """
:root { color-scheme: light dark; --faint: #8885; --box: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 84rem; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
.lead { font-size: 1.15rem; } .note { opacity: .8; font-size: .9rem; max-width: 60rem; }
.missing { border-left: 4px solid #e07b1a; padding-left: .8rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--faint); padding: .3rem .35rem; text-align: right;
  white-space: nowrap; font-size: .9rem; }
th:first-child, td:first-child { text-align: left; } thead th { vertical-align: bottom; }
th small, td small { font-weight: normal; display: block; opacity: .8; }
th { white-space: normal; min-width: 3rem; } th small { min-width: 4.2rem; }
.wide th:first-child, .wide td:first-child { position: sticky; left: 0; background: Canvas; }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; } figure svg { display: block; width: 100%; max-width: 40rem; height: auto; }
figure:has(> .panels) { grid-column: 1 / -1; overflow-x: auto; }
figure > svg.panels { max-width: none; min-width: 48rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none; padding: 0;
  font-size: .9rem; } .legend svg { vertical-align: middle; margin-right: .35rem; }
code, pre { background: var(--box); border-radius: 4px; } code { padding: 0 .25rem; }
pre { padding: .7rem; overflow-x: auto; } .text { text-align: left; white-space: normal; }
"""


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page that loads nothing from elsewhere; empty parts are left out."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def note(text: str) -> str:
    """A remark in small print."""
    return f'<p class="note">{escape(text)}</p>'


def table(head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], text: int = -1) -> str:
    """Columns as (title, unit or remark); cells are HTML; column `text` may be long."""
    kinds = [' class="text"' if i == text else "" for i in range(len(head))]
    cells = "".join(
        f"<th{kind}>{escape(title)}" + (f"<small>{escape(unit)}</small>" if unit else "") + "</th>"
        for kind, (title, unit) in zip(kinds, head, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{c}</td>' for k, c in zip(kinds, row, strict=True))}</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0"><table>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def between(value: str, low: str, high: str) -> str:
    """A value, and in small print below it the interval that it lies in."""
    return f"{value} <small>{low} to {high}</small>"


def millions(count: float) -> str:
    """A count of FLOPs in millions, as exact as it takes to tell policies apart."""
    return f"{count / 1e6:.3f}" if count else "0"
