"""What a decision takes and what is remembered for the next one: a section of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from training.pages.html import millions, note, table
from training.studies.config import StudyConfig
from training.studies.summary import Summary

__all__ = ["decisions_section"]

_COLUMNS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "attention": ("attention", "MFLOPs", millions),
    "total": ("total", "MFLOPs", millions),
    "p50_ms": ("p50", "ms", lambda ms: f"{ms:.3f}"),
    "p99_ms": ("p99", "ms", lambda ms: f"{ms:.3f}"),
    "state": ("carried", "numbers", lambda numbers: f"{numbers:,}"),
}
"""Field of `measures.Cost`: title, unit, and how a value is written."""


def decisions_section(study: StudyConfig, summary: Summary) -> list[str]:
    """HTML of the time and the memory of every arm's decisions; nothing where no arm's times were
    measured over an episode. Columns that are not measured of any arm are left out, as are numbers
    carried where no arm carries any."""
    costs = {name: row.cost for name, row in summary.arms.items() if row.cost is not None}
    if all(cost["p50_ms"] is None for cost in costs.values()):
        return []
    kinds = [key for key in _COLUMNS if any(cost[key] is not None for cost in costs.values())]
    if not any(cost["state"] for cost in costs.values()):
        kinds = [key for key in kinds if key != "state"]
    head = [("arm", ""), *((title, unit) for title, unit, _ in map(_COLUMNS.__getitem__, kinds))]
    rows = [[escape(name), *_cells(cost, kinds)] for name, cost in costs.items()]
    clock = "CPU time of one thread" if study.device == "cpu" else f"time on {study.device}"
    remark = (
        f"Milliseconds: {clock}, over what an episode's decisions see, all arms in turn; half of "
        "the decisions take no longer than p50, 99 of 100 no longer than p99. Memories are full by "
        "then, where they have an end. Policies are as they are initialised: training changes the "
        "numbers in one, not what it computes."
    )
    return ["<h2>A decision's time and memory</h2>", table(head, rows), note(remark)]


def _cells(cost: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    return ["-" if cost[key] is None else _COLUMNS[key][2](cost[key]) for key in kinds]
