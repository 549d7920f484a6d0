"""The page of a study: one HTML file that holds its figures and loads nothing from elsewhere."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from envs import find_task, tasks
from training.collect import environments
from training.collect.outcomes import outcomes_of
from training.compare import tables
from training.compare.claims import at_ceiling, headline, lead_sentences, of_controls
from training.compare.config import CurveConfig
from training.compare.results import Results, training_spread
from training.reports.figures import (
    MOST_NAMED,
    OVERLAID,
    Bar,
    Line,
    Point,
    draw_bars,
    draw_lines,
    draw_picture,
    draw_points,
)
from training.reports.html import (
    Section,
    Table,
    bullets,
    charts,
    image,
    legend,
    note,
    page,
    pre,
    sections_of_state,
)
from training.reports.plots import panels

_FLOPS = (
    "m: random projections of a feature map; n: of a hybrid's coefficient; F: length of a feature "
    "vector; d: dimension of queries and keys; FLOPs: floating-point operations, 2 a multiply-add."
)


COST_LABELS = {
    "attention": "attention, FLOPs a step (multiply-add = 2)",
    "total": "whole policy, FLOPs a step (multiply-add = 2)",
}
REWARD_LABEL = "reward per episode"


def render(
    results: Results, command: str, missing: Sequence[str], failed: Sequence[str] = ()
) -> str:
    """The page as text, the same for the same files.

    Args:
        results: of the study.
        command: shell command that runs the study.
        missing: labels of missing jobs.
        failed: a reason for each of them that failed.
    """
    study, runs = results.study, results.runs
    task = find_task(runs[0].job.env_id) if runs else None
    one_seed = any(row.scores.seeds == 1 for row in results.variants.values())
    alone = " (one seed: over scenes alone)" if one_seed else ""
    unfinished, state = sections_of_state("study", missing, failed)
    sentences = headline(results)
    verdict = lead_sentences(sentences)[: 3 - len(unfinished)]
    more = [sentence for sentence in sentences if sentence not in verdict]
    best, of_groups = tables.best_pairs(results), tables.group_pairs(results)
    gaze, budget = tables.gaze(results), tables.budget(results)
    judged = [one.full_label for some in tasks() if (one := some.headline_outcome) is not None]
    measures = "".join(f", or {label}" for label in judged)
    sections = [
        _results(results, alone),
        Section("Not finite", _if(tables.stops(results), note(
            "Training these gave numbers that are not finite, and would give them again: they have "
            "no policy, and are not trained again. After a change, move their directories away."))),
        Section(f"The best {study.best_seeds} of {len(study.seeds)} seeds", _averaged(
            results, best, tables.best(results, best), f", the best {study.best_seeds} seeds",
            "The best by the reward of the evaluation above, and their mean by the same episodes: "
            "picking the best is biased upward, the more so the more seeds differ. Compare "
            "variants by all seeds. The standard deviation is over the seeds.")),
        Section("Groups of variants", _averaged(
            results, of_groups, tables.groups(results, of_groups), ", by group",
            "Means over the variants of a group, each variant the mean of its seeds; variants that "
            "stopped, or are not evaluated yet, are left out of them. Curves are means over all "
            "finished runs of a group.")),
        Section("Cost against reward", [
            legend(results.names), charts(pareto_charts(results)), note(_about_costs(results))]),
        Section("A decision's time and memory", _if(tables.decisions(results), note(
            "Milliseconds:", "CPU time of one thread" if study.device == "cpu" else
            f"time on {study.device}", "over the observations of an episode, all variants in turn; "
            "half of the decisions take no longer than p50, 99 of 100 no longer than p99. "
            "Memories are full by then, where they have an end. Policies are as they are "
            "initialised: training changes the numbers in one, not what it computes."))),
        Section("Training", [_legend(results.names), charts(training_charts(results)), note(
            "Mean over the training seeds, the standard deviation over them shaded. Finished runs "
            "only.")]),
        Section("Held-out loss", _if(tables.held_out(results), note(
            "The loss of cloning on episodes that were held out of it, in the last iteration. Runs "
            "of one seed hold out the same episodes where they learn from one recording, or in one "
            "iteration from an expert in one environment. Others hold out their own: episodes of "
            "the policy, or of an expert with another camera. How far those differ is in the loss "
            "too."))),
        *(_curve(results, curve, alone) for curve in study.curves),
        Section("What each stage brings", _if(tables.stages(results), note(
            f"{study.headline}: success{measures}, with 95 % intervals; rewards."))),
        Section("Gaze of the policies", [gaze[0], *map(note, gaze[1:])] if gaze else []),
        Section("Budget", [budget[0], note(
            f"{budget[1]}.",
            "Wall time is that of the machine and its load; it compares no variants.",
        )] if budget else [note("No run is finished yet.")]),
        Section("Controls and further comparisons", [
            bullets(filter(None, [of_controls(results), *more]))], folded=True),
        *state,
        _provenance(results, command),
    ]  # fmt: skip
    scene = image(task.scene if task else None)
    return page(study.title, first_chart(results), [*verdict, *unfinished], sections, scene)


def _if(table: Table | Sequence[Table] | None, *parts: Any) -> list[Any]:
    """One or several tables with their captions; empty without a table."""
    if not table:
        return []
    return [*([table] if isinstance(table, Table) else table), *parts]


def _legend(names: Sequence[str]) -> Any:
    """A legend, unless each of the names has a separate panel."""
    return legend(names) if len(names) <= OVERLAID else None


def _results(results: Results, alone: str) -> Section:
    """The table of the results, first of all."""
    study, ceiling = results.study, at_ceiling(results)
    task = find_task(results.runs[0].job.env_id) if results.runs else None
    last = study.evaluation_seed + study.episodes - 1
    at_end = (
        f"= marks {len(ceiling)} of {len(results.variants)} variants that are at the ceiling: "
        "success does not tell them apart. See where they can fail: curves, held-out loss."
    )
    return Section("Results", [
        tables.results_table(results) or note("Nothing is measured yet."),
        note(
            task.what if task else None,
            f"{study.episodes} scenes (seeds {study.evaluation_seed} to {last}), the same for all, "
            f"and none of them used in training. Baseline: {study.baseline}. Intervals: over seeds "
            f"and scenes as crossed random effects, Student's t{alone}; ratios on paired scenes. "
            "Latency: median of one policy step, all variants timed in turn.",
            at_end if ceiling else None, _FLOPS,
        ),
    ])  # fmt: skip


def _averaged(
    results: Results, pairs: tables.Pairs, table: Table | None, of: str, text: str
) -> list[Any]:
    """The parts of a section on the best seeds, or on groups of variants; empty without any."""
    if not pairs:
        return []
    return _if(table, _legend(list(pairs)), charts(training_charts(results, pairs, of)), note(text))


def _about_costs(results: Results) -> str:
    fronts = [
        f"by {kind} FLOPs {', '.join(front)}"
        for kind in ("attention", "total")
        if (front := results.front(kind))
    ]
    return (
        "Bars: 95 % interval of the mean reward over seeds and scenes. Ringed and joined: the "
        "Pareto front, variants whose mean none beats at as low a cost, controls aside"
        f"{': ' if fronts else ''}{'; '.join(fronts)}. Scripted policies that are far off are "
        "in the table alone."
    )


def _curve(results: Results, curve: CurveConfig, alone: str) -> Section:
    repair = (
        f"Depth images as with policy.repair = {curve.repair}, without training by it."
        if curve.repair else None
    )  # fmt: skip
    return Section(curve.name[:1].upper() + curve.name[1:], [
        _legend(results.names), charts(curve_charts(results, curve)),
        note(
            f"The trained policies, no training in between; {curve.episodes} scenes at each point. "
            f"Bands: 95 % interval over seeds and scenes{alone}.", repair,
            _trained_on(results, curve),
        ),
        tables.controls(results, curve),
    ])  # fmt: skip


def _trained_on(results: Results, curve: CurveConfig) -> str:
    """The values, in the first variant's stages, of the settings that a curve changes."""
    keys = list(dict.fromkeys(key for point in curve.points for key in point.set))
    stages = []
    for run in results.runs:
        first = results.runs[0]
        if (run.variant.name, run.seed) != (first.variant.name, first.seed) or not keys:
            continue
        settings = environments.resolved(run.job.env_id, run.job.env)
        values = (f"{key} = {json.dumps(settings.get(key, 'the default'))}" for key in keys)
        stages.append(f"stage {run.stage + 1} ({run.trainer}) {', '.join(values)}")
    return f"Trained with: {'; '.join(stages)}." if stages else ""


def _provenance(results: Results, command: str) -> Section:
    """How to run the study again, and where its figures come from."""
    study, origin, measured = results.study, results.provenance, None
    if origin:
        versions, machine = origin.get("versions", {}), origin.get("hardware", {})
        said = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        measured = (
            f"Latencies were measured with Python {origin['python']}, {said}, on "
            f"{machine.get('cpu') or 'an unknown machine'}, {machine.get('cores') or '?'} cores, "
            f"device {study.device}."
        )
    devices = {study.device, *(getattr(run.job, "device", "cpu") for run in results.runs)}
    same = "Where the versions and the machine are the same, so are all figures but the times."
    return Section("How to run it again", [
        pre(command),
        note(
            "With --out and the study's directory it resumes. A record, such as the directory of a "
            "published page, starts a new --out with --unpack.",
            f"Training seeds {', '.join(map(str, study.seeds))}.",
            same if devices == {"cpu"} else None,
            f"The runs were made at {'; '.join(results.commits()) or 'no commit yet'}.", measured,
        ),
    ], folded=True)  # fmt: skip


def training_charts(results: Results, pairs: tables.Pairs | None = None, of: str = "") -> list[str]:
    """A chart for every stage and column of its metrics that has values.

    Args:
        results: of a study.
        pairs: what each line is the mean of; None: every variant, over its seeds.
        of: what the titles say of that.
    """
    study = results.study
    if pairs is None:
        pairs = {name: [(name, seed) for seed in study.seeds] for name in results.names}
    group = next(variant.group for variant in study.arms if variant.name == study.baseline)
    baseline = study.baseline if study.baseline in pairs else group or ""
    charts = []
    task = find_task(results.runs[0].job.env_id) if results.runs else None
    for stage, settings in enumerate(study.stages):
        done = {name: results.finished(name, stage) for name in results.names}
        curves = [[done[n][s] for n, s in each if s in done[n]] for each in pairs.values()]
        for panel in panels(outcomes_of(task)):
            spreads = [training_spread(of_line, panel.column) for of_line in curves]
            named = enumerate(zip(pairs, spreads, strict=True))
            lines = [Line(i, name, *found) for i, (name, found) in named if found is not None]
            if not panel.has_values(line.y for line in lines):
                continue
            if len(lines) > OVERLAID and all(len(line.x) == 1 for line in lines):
                continue  # a panel for every variant, each with a single point
            of_stage = f"stage {stage + 1}: " if len(study.stages) > 1 else ""
            title = f"Training, {of_stage}{panel.meaning}{of}"
            xlabel = f"{of_stage}iteration of training.{settings.trainer}"
            labels = title, xlabel, panel.meaning
            charts.append(draw_lines(lines, *labels, baseline, panel.share))
    return charts


def first_chart(results: Results) -> str | None:
    """The first figure of a page: the reward of every variant, by name, against its attention
    FLOPs; of many variants, or without costs, a row each. None before anything is measured."""
    variants = results.variants
    if not variants:
        return None
    points, across = _pareto_points(results, "attention")
    title = "Reward of each variant"
    if 1 < len(points) == len(variants) <= MOST_NAMED:
        named = [replace(point, name=name) for name, point in points.items()]
        return draw_points(named, title, COST_LABELS["attention"], REWARD_LABEL, across)
    rows = [
        Bar(f"{name} (control)" if name in results.study.controls else name,
            row.scores.reward, *row.interval,
            "" if row.cost is None else f"{row.cost['attention'] / 1e6:.3g} M")
        for name, row in variants.items()
    ]  # fmt: skip
    beside = "attention FLOPs" if any(row.beside for row in rows) else ""
    return draw_bars(rows, title, REWARD_LABEL, across, beside)


def pareto_charts(results: Results) -> list[str]:
    """Attention FLOPs and total FLOPs against reward."""
    charts = []
    for kind, xlabel in COST_LABELS.items():
        points, across = _pareto_points(results, kind)
        if points:
            title = f"FLOPs against reward, {kind}"
            charts.append(draw_points(list(points.values()), title, xlabel, REWARD_LABEL, across))
    return charts


def pareto_picture(results: Results) -> bytes | None:
    """Attention FLOPs against reward as a PNG; None before anything is measured."""
    points, across = _pareto_points(results, "attention")
    if not points:
        return None
    labels = COST_LABELS["attention"], REWARD_LABEL
    return draw_picture(list(points.values()), list(points), *labels, across)


def _pareto_points(results: Results, kind: str) -> tuple[dict[str, Point], dict[str, float]]:
    """Points by variant, controls without attention, and the level of each scripted policy."""
    free = results.study.controls if kind == "attention" else set()
    front = results.front(kind)
    points = {
        name: Point(
            results.names.index(name), 0 if name in free else row.cost[kind], row.scores.reward,
            *row.interval, on_front=name in front,
        )
        for name, row in results.variants.items()
        if row.cost is not None
    }  # fmt: skip
    return points, {name: row.scores.reward for name, row in results.references.items()}


def curve_charts(results: Results, curve: CurveConfig) -> Sequence[str]:
    """The outcome that the task is judged by first, of variants and references along a curve."""
    lines: list[Line] = []
    meaning, shares = "success, share of episodes", True
    references = results.study.references
    for number, name in enumerate([*results.names, *references]):
        found = [
            (point.x, scores)
            for point in sorted(curve.points, key=lambda point: point.x)
            if (scores := results.scores(name, curve, point)) is not None
        ]
        if not found:
            continue
        first = found[0][1]
        if first.measured is not None and first.headline is not None:
            meaning, shares = first.headline.axis_label, first.are_shares
        levels = [one.mean_measured or (one.success, one.success_interval) for _, one in found]
        table = np.array([(x, y, *ends) for (x, _), (y, ends) in zip(found, levels, strict=True)])
        x, y, low, high = table.T
        lines.append(Line(number, name, x, y, low, high, name in references))
    if not lines:
        return []
    labels = f"{curve.name}, {meaning}", curve.xlabel, meaning
    return [draw_lines(lines, *labels, results.study.baseline, share=shares)]
