"""The progress bar of every command."""

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


class ProgressBar(tqdm):
    """tqdm as wide as the terminal; a terminal that reports 0 columns or rows, as in some
    containers and editors, gets a bar of fixed length. In a file, one line is written every 20 s.
    """

    nrows: int | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        usual = {"mininterval": 0.2 if sys.stderr.isatty() else 20.0, "dynamic_ncols": True}
        super().__init__(*arguments, **{**usual, **options})

    @property
    def format_dict(self) -> Any:
        """The state from which a bar is drawn."""
        facts = super().format_dict
        return {**facts, "ncols": _known(facts["ncols"]), "nrows": _known(facts["nrows"])}

    def display(self, *arguments: Any, **options: Any) -> Any:
        """Draw the bar."""
        self.nrows = _known(self.nrows)
        return super().display(*arguments, **options)


def _known(size: int | None) -> int | None:
    """A terminal dimension; tqdm subtracts one, and accepts None for an unknown one."""
    return size if size is not None and size > 0 else None


def watched(results: Iterable[T], name: str, total: int, unit: str, shown: bool) -> Iterable[T]:
    """The results as they arrive, with a bar (if `shown`) that is cleared at the end."""
    options: Any = {"desc": name, "total": total, "unit": unit, "leave": False}
    bar: Iterable[T] = ProgressBar(results, disable=not shown, **options)
    return bar
