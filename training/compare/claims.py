"""The sentences of a study's page that follow from its figures."""

import math
from collections.abc import Mapping, Sequence

from training.analysis.intervals import ratio_interval
from training.compare.results import Results, Row, Scores

CEILING = 0.95
"""Share of success from which on a task is nearly always done."""


def of_controls(results: Results) -> str:
    """The level of the task's outcome that every control and the headline variant reach; empty if
    that variant, or every control, is not measured."""
    study = results.study
    first = results.variants.get(study.headline or study.baseline)
    controls = [row for name, row in results.variants.items() if name in study.controls]
    others = [row for row in controls if first is not None and row.name != first.name]
    if first is None or not others:
        return ""
    measured = all(row.scores.measured is not None for row in (first, *others))
    outcome = first.scores.headline if measured else None
    what = "success" if outcome is None else outcome.full_label
    said = ", ".join(f"{_reached(row.scores, measured)} by {row.name}" for row in others)
    ours = _reached(first.scores, measured)
    return f"{what[:1].upper()}{what[1:]}: {ours} by {first.name}; controls: {said}."


def _reached(scores: Scores, measured: bool) -> str:
    if measured and scores.mean_measured is not None:
        return f"{scores.mean_measured[0]:.3f}"
    return f"{100 * scores.success:.1f} %"


def at_ceiling(results: Results) -> list[str]:
    """Variants that nearly always succeed, as often as the best one and the oracle, by intervals
    that meet: the task does not distinguish them. None for a task that is not judged by success."""
    variants = list(results.variants.values())
    if not variants or any(row.scores.measured is not None for row in variants):
        return []
    oracle = results.references.get("oracle")
    known = variants if oracle is None else [*variants, oracle]
    least = max((row.scores for row in known), key=lambda one: one.success).success_interval[0]
    near = [
        row.name
        for row in variants
        if row.scores.success >= CEILING and row.scores.success_interval[1] >= least
    ]
    return near if len(near) > 1 else []


def headline(results: Results) -> list[str]:
    """The headline variant, and the cheapest equal one, against the baseline.

    No sentence before both have been measured.
    """
    study, base = results.study, results.variants.get(results.study.baseline)
    if base is None or len(results.variants) < min(len(study.arms), 2):
        return ["Not enough is measured yet for a comparison with the baseline."]
    low, high = base.interval
    earned = f"{base.scores.reward:.3f} (95 % interval {low:.3f} to {high:.3f})"
    if len(study.arms) == 1:
        return [f"{base.name} earns {earned}.", _success(base, results)]
    compared = {name: row for name, row in results.variants.items() if row.ratio is not None}
    if not compared:
        so_little = "so little that a ratio to it says nothing."
        return [f"The baseline {study.baseline} earns {earned}, {so_little}"]
    others = {name: row for name, row in compared.items() if name not in study.controls}
    best = max(others or compared, key=lambda name: compared[name].scores.reward)
    name = study.headline if study.headline in compared else best
    verdict = _verdict(compared[name], study.equal_within)
    return [
        f"{_against(compared[name], study.baseline)} Its reward is {verdict}.",
        *_measured(compared[name], base, results),
        _success(compared[name], results),
        *_cheapest(results, others, name),
        *(
            f"The control {n} is {verdict}, at {_times(row)}."
            for n, row in compared.items()
            if n in study.controls
            and (verdict := _verdict(row, study.equal_within)).startswith("not")
        ),
    ]


def lead_sentences(sentences: Sequence[str]) -> list[str]:
    """The three sentences at the top of a page: the comparison, the level reached, the cheapest."""
    cheapest = [one for one in sentences[2:] if one.startswith(("Cheapest", "No kind", "Of no"))]
    return [*sentences[:2], *(cheapest[-1:] or sentences[2:3])]


def _verdict(row: Row, margin: float) -> str:
    """Whether the interval of the ratio excludes a loss beyond a share of the baseline's reward."""
    low, high = row.ratio_interval or (math.nan, math.nan)
    worse = f"worse by more than {100 * margin:g} %"
    if low >= 1 - margin:
        return f"not {worse}"
    if high < 1 - margin:
        return worse
    return f"{'not ' if _ratio(row) >= 1 - margin else ''}{worse} as a point estimate alone"


def _cheapest(results: Results, rows: Mapping[str, Row], headline: str) -> list[str]:
    """The cheapest kind of attention that is not worse, by its interval, else by its ratio."""
    if all(row.fewer is None for row in rows.values()):
        return []  # costs are not measured
    margin = results.study.equal_within
    saving = {n: row for n, row in rows.items() if row.fewer is not None and row.fewer > 1}
    sure = {
        n: row for n, row in saving.items()
        if row.ratio_interval and row.ratio_interval[0] >= 1 - margin
    }  # fmt: skip
    likely = {n: row for n, row in saving.items() if _ratio(row) >= 1 - margin}
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
    if cheapest != headline:
        verdict = _verdict(found[cheapest], margin)
        against = _against(found[cheapest], results.study.baseline)
        sentences.append(f"Cheapest {verdict}: {against}")
    return sentences


def _ratio(row: Row) -> float:
    return row.ratio if row.ratio is not None else math.nan


def _times(row: Row) -> str:
    low, high = row.ratio_interval or (math.nan, math.nan)
    return f"{_ratio(row):.3f} times (95 % interval {low:.3f} to {high:.3f})"


def _against(row: Row, baseline: str) -> str:
    seeds, scenes = row.scores.rewards.shape
    count = f"{seeds} training seeds, {scenes} scenes each"
    if seeds == 1:
        count = f"one seed: intervals over {scenes} scenes alone"
    text = f"{row.name} earns {_times(row)} the reward of {baseline}"
    if row.fewer is None:
        return f"{text} ({count})."
    times = row.fewer if row.fewer >= 1 else 1 / row.fewer
    number = f"{times:.3g}" if times < 999 else f"{times:,.0f}"  # without an exponent
    amount = f"{number} times {'fewer' if row.fewer >= 1 else 'as many'}"
    return f"{text}, for {amount} attention FLOPs a step ({count})."


def _measured(row: Row, base: Row, results: Results) -> list[str]:
    """The level of the outcome that the task is judged by first; empty if that is success."""
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
    oracle = results.references.get("oracle")
    if oracle is not None and oracle.scores.measured is not None:
        text += f", the scripted oracle {oracle.scores.measured.mean():.3f}"
    return [f"{text}."]


def _success(row: Row, results: Results) -> str:
    low, high = row.scores.success_interval
    text = (
        f"It {row.scores.success_words} in {100 * row.scores.success:.1f} % of the episodes "
        f"({100 * low:.1f} to {100 * high:.1f} %)"
    )
    oracle = results.references.get("oracle")
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
