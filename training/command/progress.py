"""The progress bar of every command."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from tqdm import tqdm

__all__ = ["ProgressBar", "watched"]

T = TypeVar("T")


class ProgressBar(tqdm):
    """tqdm as wide as the terminal, where that knows its size: one that says 0 columns or rows, as
    under some containers and editors, has a bar of fixed length. Into a file, a line in 20 s.
    """

    nrows: int | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        seconds = 0.2 if sys.stderr.isatty() else 20.0
        usual = {"mininterval": seconds, "dynamic_ncols": True}
        super().__init__(*arguments, **{**usual, **options})

    @property
    def format_dict(self) -> Any:
        """What a bar is drawn from."""
        facts = super().format_dict
        return {**facts, "ncols": _known(facts["ncols"]), "nrows": _known(facts["nrows"])}

    def display(self, *arguments: Any, **options: Any) -> Any:
        """Draw the bar."""
        self.nrows = _known(self.nrows)
        return super().display(*arguments, **options)


def _known(size: int | None) -> int | None:
    """A size of a terminal; tqdm subtracts one, and takes None for one that is not known."""
    return size if size is not None and size > 0 else None


def watched(results: Iterable[T], name: str, total: int, unit: str, shown: bool) -> Iterable[T]:
    """Results as they come, with a bar that goes when they are there; `shown`: whether it is."""
    bar: Iterable[T] = ProgressBar(
        results, desc=name, total=total, unit=unit, disable=not shown, leave=False
    )
    return bar
