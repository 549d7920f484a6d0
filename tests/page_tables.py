"""Compare the tables of two pages cell by cell.

python -m tests.page_tables OLD.html NEW.html
"""

import sys
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path

__all__ = ["differences", "tables"]


class _Tables(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found: list[list[list[str]]] = []
        self.cell: list[str] | None = None

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.found.append([])
        elif tag == "tr":
            self.found[-1].append([])
        elif tag in ("td", "th"):
            self.cell = []

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self.cell is not None:
            self.found[-1][-1].append(" ".join(" ".join(self.cell).split()))
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell.append(data)


def tables(page: str) -> list[list[list[str]]]:
    """The texts of the cells of a page's tables, by table and row, the titles' row first."""
    parser = _Tables()
    parser.feed(page)
    return parser.found


def differences(old: str, new: str) -> list[str]:
    """Where the tables of two pages differ, a line a row."""
    lines = []
    for place, both in enumerate(zip_longest(tables(old), tables(new), fillvalue=[]), 1):
        for row, (before, after) in enumerate(zip_longest(*both)):
            if before != after:
                lines.append(f"table {place}, row {row}: {before} became {after}")
    return lines


def main(words: list[str]) -> int:
    """Print what differs; 1 where something does."""
    old, new = (Path(word).read_text(encoding="utf-8") for word in words)
    found, rows = differences(old, new), [row for table in tables(old) for row in table]
    print(
        "\n".join(
            [*found, f"{len(found)} of {len(rows)} rows, {sum(map(len, rows))} cells, differ"]
        )
    )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
