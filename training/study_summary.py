"""A study's arms beside each other, and the sentences that their figures make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.study_config import StudyConfig, slug
from training.study_measures import condition_file, read_json
from training.study_results import (
    Interval,
    Scores,
    mean_interval,
    pareto_front,
    ratio_interval,
    read_scores,
)

__all__ = ["Row", "Summary", "headline", "summarise", "where"]

_BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Row:
    """An arm or a scripted policy on the task itself."""

    name: str
    scores: Scores
    interval: Interval
    """95% bootstrap interval of the reward."""
    ratio: float | None = None
    """Its reward, as a multiple of the baseline's."""
    ratio_interval: Interval | None = None
    """95% bootstrap interval of the ratio."""
    cost: Mapping[str, Any] | None = None
    """FLOPs, latency and parameters, the keys of `StepCost`; None where not measured."""
    fewer: float | None = None
    """The baseline's attention FLOPs, as a multiple of its own; None where it has none."""


@dataclass(frozen=True)
class Summary:
    """What is known of a study."""

    arms: dict[str, Row]
    references: dict[str, Row]
    front: dict[str, list[str]]
    """Arms on the Pareto front, by the cost: attention or total FLOPs."""
    provenance: dict[str, Any]


def where(study: StudyConfig, out: Path, name: str, curve: str | None, x: float) -> list[Path]:
    """The evaluations of an arm, one a seed, or the one of a reference."""
    if name in study.references:
        return [condition_file(out, name, curve, x)]
    return [condition_file(out, f"{slug(name)}-s{seed}", curve, x) for seed in study.seeds]


def summarise(study: StudyConfig, out: Path) -> Summary:
    """Read what is there; arms and references without an evaluation are left out."""
    measured = read_json(out / "costs.json") if (out / "costs.json").is_file() else {}
    costs = measured.get("costs", {})
    baseline = read_scores(where(study, out, study.baseline, None, 0.0))
    rows = {}
    for name in [*(arm.name for arm in study.arms), *study.references]:
        scores = read_scores(where(study, out, name, None, 0.0))
        if scores is not None:
            rows[name] = _row(study, name, scores, baseline, costs)
    arms = {arm.name: rows[arm.name] for arm in study.arms if arm.name in rows}
    front = {
        kind: pareto_front(
            {name: row.cost[kind] for name, row in arms.items() if row.cost is not None},
            {name: row.scores.reward for name, row in arms.items()},
        )
        for kind in ("attention", "total")
    }
    references: dict[str, Row] = {name: rows[name] for name in study.references if name in rows}
    return Summary(arms, references, front, measured.get("provenance", {}))


def _row(
    study: StudyConfig, name: str, scores: Scores, baseline: Scores | None, costs: dict[str, Any]
) -> Row:
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    interval = mean_interval(scores.rewards, generator)
    ratio, between = None, None
    if baseline is not None and name != study.baseline and name not in study.references:
        between = ratio_interval(scores.rewards, baseline.rewards, generator)
        ratio = scores.reward / baseline.reward if between else None
    cost, reference = costs.get(name), costs.get(study.baseline)
    fewer = None
    if cost and reference and cost["attention"] and name != study.baseline:
        fewer = reference["attention"] / cost["attention"]
    return Row(name, scores, interval, ratio, between, cost, fewer)


def headline(study: StudyConfig, summary: Summary) -> list[str]:
    """What the figures say of the headline arm and of the cheapest equal one against the baseline.

    No sentence before both have been measured.
    """
    base = summary.arms.get(study.baseline)
    if base is None or len(summary.arms) < 2:
        return ["Not enough is measured yet for a comparison with the baseline."]
    compared = {name: row for name, row in summary.arms.items() if row.ratio is not None}
    if not compared:
        low, high = base.interval
        return [
            f"The baseline {study.baseline} earns {base.scores.reward:.3f} (95 % interval "
            f"{low:.3f} to {high:.3f}), so little that a ratio to it says nothing."
        ]
    controls = {arm.name for arm in study.arms if arm.control}
    candidates = [name for name in compared if name not in controls] or list(compared)
    best = max(candidates, key=lambda name: compared[name].scores.reward)
    name = study.headline if study.headline in compared else best
    sentences = [_against(compared[name], study.baseline), _success(compared[name], summary)]
    equal = {n: r for n, r in compared.items() if _ratio(r) >= 1 - study.equal_within}
    saving = {n: r.fewer for n, r in equal.items() if r.fewer is not None and r.fewer > 1}
    saving = {n: fewer for n, fewer in saving.items() if n not in controls}
    within = f"within {100 * study.equal_within:g} % of the baseline's reward"
    if saving:
        cheapest = max(saving, key=lambda n: saving[n])
        if cheapest != name:
            sentences.append(f"Cheapest {within}: {_against(equal[cheapest], study.baseline)}")
    else:
        sentences.append(f"No kind of attention with fewer FLOPs than the baseline is {within}.")
    sentences += [
        f"The control {n} is {within}, at {_times(r)}." for n, r in equal.items() if n in controls
    ]
    return sentences


def _ratio(row: Row) -> float:
    return row.ratio if row.ratio is not None else float("nan")


def _times(row: Row) -> str:
    low, high = row.ratio_interval or (float("nan"), float("nan"))
    return f"{_ratio(row):.3f} times (95 % interval {low:.3f} to {high:.3f})"


def _against(row: Row, baseline: str) -> str:
    seeds, scenes = row.scores.rewards.shape
    count = f"{seeds} training seed{'s' if seeds > 1 else ''}, {scenes} scenes each"
    text = f"{row.name} earns {_times(row)} the reward of {baseline}"
    if row.fewer is None:
        return f"{text} ({count})."
    amount = (
        f"{row.fewer:.3g} times fewer" if row.fewer >= 1 else f"{1 / row.fewer:.3g} times as many"
    )
    return f"{text}, for {amount} attention FLOPs a step ({count})."


def _success(row: Row, summary: Summary) -> str:
    low, high = row.scores.success_interval
    text = (
        f"It succeeds in {100 * row.scores.success:.1f} % of the episodes "
        f"({100 * low:.1f} to {100 * high:.1f} %)"
    )
    oracle = summary.references.get("oracle")
    if oracle is None:
        return f"{text}."
    known = 100 * oracle.scores.success
    return f"{text}, the scripted oracle, which knows the scene, in {known:.1f} %."
