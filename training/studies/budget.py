"""What a study's finished runs took: a section of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from training.pages.html import note, table
from training.studies.charts import finished_runs
from training.studies.config import StudyConfig
from training.studies.results import budget_of
from training.studies.runs import Run

__all__ = ["budget_section"]

_SPENT = {
    "iteration": "iterations", "episodes": "episodes", "env_steps": "environment steps",
    "decisions": "decisions", "frames": "frames",
}  # fmt: skip
"""What a run took: column of metrics.csv and what the page calls it."""


def budget_section(study: StudyConfig, runs: Sequence[Run]) -> list[str]:
    """HTML of the budget of every arm at every stage, and of what was the same for all."""
    return ["<h2>Budget</h2>", _budget(study, runs)]


def _budget(study: StudyConfig, runs: Sequence[Run]) -> str:
    rows = []
    given: dict[str, list[set[float]]] = {}
    for stage, settings in enumerate(study.stages):
        values: dict[str, set[float]] = {}
        for arm in study.arms:
            spent = [budget_of(curve) for curve in finished_runs(runs, arm.name, stage)]
            if not spent:
                continue
            for one, key in ((one, key) for one in spent for key in _SPENT if key in one):
                values.setdefault(key, set()).add(one[key])
            minutes = sum(one.get("wall_s", 0.0) for one in spent) / len(spent) / 60
            changes = f"<code>{escape(json.dumps(arm.set))}</code>" if stage == 0 else ""
            rows.append([escape(arm.name), f"{stage + 1} ({settings.trainer})", str(len(spent)),
                         *(_range([one[key] for one in spent if key in one]) for key in _SPENT),
                         f"{minutes:.1f}", changes])  # fmt: skip
        for key, found in values.items():
            given.setdefault(key, []).append(found)
    if not rows:
        return note("No run is finished yet.")
    same = [_SPENT[key] for key, stages in given.items() if all(len(v) == 1 for v in stages)]
    other = [_SPENT[key] for key in given if _SPENT[key] not in same]
    text = f"All finished runs of a stage took the same {_listed(same)}" if same else ""
    if other:
        text += f"{', but not' if same else 'Runs took different'} {_listed(other)}"
    head = [("arm", ""), ("stage", ""), ("finished", "seeds"),
            *((name, "a run") for name in _SPENT.values()),
            ("wall time", "minutes a run, mean"), ("what makes the arm", "")]  # fmt: skip
    remark = note("Wall time is that of the machine and what else it did; it compares no arms.")
    return f"<p>{text}.</p>" + table(head, rows, text=len(head) - 1) + remark


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _range(values: Sequence[float]) -> str:
    """A number, or the smallest and the largest of several seeds."""
    ends = list(dict.fromkeys(f"{v:,.0f}" for v in (min(values), max(values)))) if values else ["-"]
    return " – ".join(ends)
