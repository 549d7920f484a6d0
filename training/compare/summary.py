"""A study's variants beside each other, and the sentences that their figures make."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.analysis.intervals import Interval, mean_interval, ratio_interval
from training.compare.config import CurveConfig, PointConfig, StudyConfig, slug
from training.compare.evaluations import Measured, evaluation_file
from training.compare.results import Scores, pareto_front, read_scores
from training.io.state_files import read_json

__all__ = [
    "Row",
    "Summary",
    "at_ceiling",
    "headline",
    "lead_sentences",
    "of_controls",
    "scores_at",
    "scores_of",
    "summarise",
]

CEILING = 0.95
"""Share of success from which on a task is nearly always done."""


@dataclass(frozen=True)
class Row:
    """A variant or a scripted policy on the task itself."""

    name: str
    scores: Scores
    interval: Interval
    """95% interval of the reward."""
    ratio: float | None = None
    """Its reward, as a multiple of the baseline's."""
    ratio_interval: Interval | None = None
    """95% interval of the ratio."""
    of_oracle: float | None = None
    """Its share of successful episodes, as a multiple of the oracle's."""
    of_oracle_interval: Interval | None = None
    """95% interval of that multiple."""
    cost: Mapping[str, Any] | None = None
    """The fields of `measures.Cost`; None where not measured."""
    fewer: float | None = None
    """The baseline's attention FLOPs, as a multiple of its own; None for a control
    and where one of both has none."""


@dataclass(frozen=True)
class Summary:
    """What is known of a study."""

    variants: dict[str, Row]
    references: dict[str, Row]
    front: dict[str, list[str]]
    """Variants on the Pareto front, controls aside, by the cost: attention or total FLOPs."""
    provenance: dict[str, Any]


def scores_of(
    study: StudyConfig, out: Path, name: str, curve: CurveConfig | None = None,
    point: PointConfig | None = None,
) -> Scores | None:  # fmt: skip
    """Episodes of a variant or reference, on the task or at a point of a curve; None without."""
    who = [name] if name in study.references else [f"{slug(name)}-s{s}" for s in study.seeds]
    return scores_at(study, out, who, curve, point)


def scores_at(
    study: StudyConfig, out: Path, who: Sequence[str], curve: CurveConfig | None,
    point: PointConfig | None,
) -> Scores | None:  # fmt: skip
    """Episodes of policies by their files' names, one a seed, as in `scores_of`.

    A point that changes nothing has the first episodes on the task.
    """
    episodes = study.episodes if curve is None else curve.episodes
    if curve is None or point is None or curve.is_of_the_task(point):
        return read_scores([evaluation_file(out, one) for one in who], episodes)
    return read_scores([evaluation_file(out, one, curve.name, point.x) for one in who], episodes)


def summarise(study: StudyConfig, out: Path) -> Summary:
    """Read what is there; variants and references without an evaluation are left out.

    UserError when a file is damaged.
    """
    costs, origin = _measured_costs(out / "costs.json")
    names = [*(variant.name for variant in study.arms), *study.references]
    found = {name: scores_of(study, out, name) for name in names}
    scores = {name: one for name, one in found.items() if one is not None}
    rows = {name: _row(study, name, scores, costs) for name in scores}
    variants = {variant.name: rows[variant.name] for variant in study.arms if variant.name in rows}
    rivals = {name: row for name, row in variants.items() if name not in study.controls}
    front = {
        kind: pareto_front(
            {name: row.cost[kind] for name, row in rivals.items() if row.cost is not None},
            {name: row.scores.reward for name, row in rivals.items()},
        )
        for kind in ("attention", "total")
    }
    references: dict[str, Row] = {name: rows[name] for name in study.references if name in rows}
    return Summary(variants, references, front, origin)


def _measured_costs(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Costs by variant and where they were measured; nothing without the file."""
    if not file.is_file():
        return {}, {}
    measured = dataclasses.asdict(read_json(Measured, file))
    return measured["costs"], measured["provenance"]


def _row(
    study: StudyConfig, name: str, scores: Mapping[str, Scores], costs: Mapping[str, Any]
) -> Row:
    ours, baseline, oracle = scores[name], scores.get(study.baseline), scores.get("oracle")
    interval = mean_interval(ours.rewards)
    if name in study.references:
        return Row(name, ours, interval)
    ratio, between = None, None
    if baseline is not None and name != study.baseline:
        between = ratio_interval(ours.rewards, baseline.rewards)
        ratio = ours.reward / baseline.reward if between else None
    share, around = None, None
    if oracle is not None and oracle.success > 0:
        share = ours.success / oracle.success
        around = _share_of(ours, oracle)
    cost, reference = costs.get(name), costs.get(study.baseline)
    fewer = None
    compared = name != study.baseline and name not in study.controls
    if cost and reference and cost["attention"] and reference["attention"] and compared:
        fewer = reference["attention"] / cost["attention"]
    return Row(name, ours, interval, ratio, between, share, around, cost, fewer)


def _share_of(ours: Scores, oracle: Scores) -> Interval | None:
    """Interval of the ratio of success; where all our episodes went alike, from our own alone."""
    if ours.success in (0.0, 1.0):
        low, high = ours.success_interval
        return low / oracle.success, high / oracle.success
    between = ratio_interval(ours.successes, oracle.successes)
    return None if between is None else (max(between[0], 0.0), between[1])


def of_controls(study: StudyConfig, summary: Summary) -> str:
    """What every control reaches beside the headline variant, of what the task is judged by;
    nothing where that variant, or every control, is not measured."""
    told = summary.variants.get(study.headline or study.baseline)
    controls = [row for name, row in summary.variants.items() if name in study.controls]
    others = [row for row in controls if told is not None and row.name != told.name]
    if told is None or not others:
        return ""
    measured = all(row.scores.measured is not None for row in (told, *others))
    outcome = told.scores.headline if measured else None
    what = "success" if outcome is None else outcome.full_label
    said = ", ".join(f"{_reached(row.scores, measured)} by {row.name}" for row in others)
    ours = _reached(told.scores, measured)
    return f"{what[:1].upper()}{what[1:]}: {ours} by {told.name}; controls: {said}."


def _reached(scores: Scores, measured: bool) -> str:
    if measured and scores.mean_measured is not None:
        return f"{scores.mean_measured[0]:.3f}"
    return f"{100 * scores.success:.1f} %"


def at_ceiling(summary: Summary) -> list[str]:
    """Variants that nearly always succeed, as often as the best one and the oracle, by intervals
    that meet: the task does not tell these apart. None of a task judged otherwise."""
    variants = list(summary.variants.values())
    if not variants or any(row.scores.measured is not None for row in variants):
        return []
    oracle = summary.references.get("oracle")
    known = variants if oracle is None else [*variants, oracle]
    best = max((row.scores for row in known), key=lambda scores: scores.success)
    least = best.success_interval[0]
    near = [
        row.name
        for row in variants
        if row.scores.success >= CEILING and row.scores.success_interval[1] >= least
    ]
    return near if len(near) > 1 else []


def headline(study: StudyConfig, summary: Summary) -> list[str]:
    """The headline variant, and the cheapest equal one, against the baseline.

    No sentence before both have been measured.
    """
    base = summary.variants.get(study.baseline)
    if base is None or len(summary.variants) < min(len(study.arms), 2):
        return ["Not enough is measured yet for a comparison with the baseline."]
    if len(study.arms) == 1:
        low, high = base.interval
        earned = f"{base.scores.reward:.3f} (95 % interval {low:.3f} to {high:.3f})"
        return [f"{base.name} earns {earned}.", _success(base, summary)]
    compared = {name: row for name, row in summary.variants.items() if row.ratio is not None}
    if not compared:
        low, high = base.interval
        return [
            f"The baseline {study.baseline} earns {base.scores.reward:.3f} (95 % interval "
            f"{low:.3f} to {high:.3f}), so little that a ratio to it says nothing."
        ]
    controls = study.controls
    candidates = [name for name in compared if name not in controls] or list(compared)
    best = max(candidates, key=lambda name: compared[name].scores.reward)
    name = study.headline if study.headline in compared else best
    verdict = _verdict(compared[name], study.equal_within)
    sentences = [
        f"{_against(compared[name], study.baseline)} Its reward is {verdict}.",
        *_measured(compared[name], base, summary),
        _success(compared[name], summary),
    ]
    sentences += _cheapest(study, {n: compared[n] for n in compared if n not in controls}, name)
    sentences += [
        f"The control {n} is {verdict}, at {_times(r)}."
        for n, r in compared.items()
        if n in controls and (verdict := _verdict(r, study.equal_within)).startswith("not")
    ]
    return sentences


def lead_sentences(sentences: Sequence[str]) -> list[str]:
    """The three of them that a page opens with: the comparison, what was reached, the cheapest."""
    cheapest = [one for one in sentences[2:] if one.startswith(("Cheapest", "No kind", "Of no"))]
    return [*sentences[:2], *(cheapest[-1:] or sentences[2:3])]


def _verdict(row: Row, margin: float) -> str:
    """What the interval of the ratio says of a margin below the baseline's reward."""
    low, high = row.ratio_interval or (float("nan"), float("nan"))
    percent = f"{100 * margin:g} %"
    if low >= 1 - margin:
        return f"not worse by more than {percent}"
    if high < 1 - margin:
        return f"worse by more than {percent}"
    if _ratio(row) >= 1 - margin:
        return f"not worse by more than {percent} as a point estimate alone"
    return f"worse by more than {percent} as a point estimate alone"


def _cheapest(study: StudyConfig, rows: Mapping[str, Row], told: str) -> list[str]:
    """The cheapest kind of attention that is not worse, by its interval, else by its ratio."""
    if all(row.fewer is None for row in rows.values()):
        return []  # costs are not measured
    margin = study.equal_within
    saving = {n: r for n, r in rows.items() if r.fewer is not None and r.fewer > 1}
    sure = {
        n: r for n, r in saving.items() if r.ratio_interval and r.ratio_interval[0] >= 1 - margin
    }
    likely = {n: r for n, r in saving.items() if _ratio(r) >= 1 - margin}
    if not likely:
        return [
            "No kind of attention with fewer FLOPs than the baseline is within "
            f"{100 * margin:g} % of the baseline's reward."
        ]
    sentences = []
    if not sure:
        sentences.append(
            "Of no kind of attention with fewer FLOPs than the baseline the interval excludes a "
            f"loss of more than {100 * margin:g} %."
        )
    found = sure or likely
    cheapest = max(found, key=lambda n: found[n].fewer or 0.0)
    if cheapest != told:
        verdict = _verdict(found[cheapest], margin)
        sentences.append(f"Cheapest {verdict}: {_against(found[cheapest], study.baseline)}")
    return sentences


def _ratio(row: Row) -> float:
    return row.ratio if row.ratio is not None else float("nan")


def _times(row: Row) -> str:
    low, high = row.ratio_interval or (float("nan"), float("nan"))
    return f"{_ratio(row):.3f} times (95 % interval {low:.3f} to {high:.3f})"


def _against(row: Row, baseline: str) -> str:
    seeds, scenes = row.scores.rewards.shape
    count = f"{seeds} training seeds, {scenes} scenes each"
    if seeds == 1:
        count = f"one seed: intervals over {scenes} scenes alone"
    text = f"{row.name} earns {_times(row)} the reward of {baseline}"
    if row.fewer is None:
        return f"{text} ({count})."
    amount = f"{_number(row.fewer)} times fewer"
    if row.fewer < 1:
        amount = f"{_number(1 / row.fewer)} times as many"
    return f"{text}, for {amount} attention FLOPs a step ({count})."


def _number(times: float) -> str:
    """To three digits, without an exponent."""
    return f"{times:.3g}" if times < 999 else f"{times:,.0f}"


def _measured(row: Row, base: Row, summary: Summary) -> list[str]:
    """What it reaches of what the task is judged by first; nothing where that is success."""
    ours, theirs = row.scores, base.scores
    outcome, found = ours.headline, ours.mean_measured
    if outcome is None or found is None or ours.measured is None or theirs.measured is None:
        return []
    mean, (low, high) = found
    text = f"It {outcome.said(f'{mean:.3f}')} ({low:.3f} to {high:.3f})"
    text += f", {base.name} {theirs.measured.mean():.3f}"
    around = ratio_interval(ours.measured, theirs.measured)
    if around is not None:
        times = mean / theirs.measured.mean()
        text += f" (of which it is {times:.3f} times, {around[0]:.3f} to {around[1]:.3f})"
    oracle = summary.references.get("oracle")
    if oracle is not None and oracle.scores.measured is not None:
        text += f", the scripted oracle {oracle.scores.measured.mean():.3f}"
    return [f"{text}."]


def _success(row: Row, summary: Summary) -> str:
    low, high = row.scores.success_interval
    text = (
        f"It {row.scores.success_words} in {100 * row.scores.success:.1f} % of the episodes "
        f"({100 * low:.1f} to {100 * high:.1f} %)"
    )
    oracle = summary.references.get("oracle")
    if oracle is None:
        return f"{text}."
    known = (
        f"{text}, the scripted oracle, which knows the scene, in "
        f"{100 * oracle.scores.success:.1f} %"
    )
    if row.of_oracle is None or row.of_oracle_interval is None:
        return f"{known}."
    low, high = row.of_oracle_interval
    return f"{known}: {row.of_oracle:.3f} times as often (95 % interval {low:.3f} to {high:.3f})."
