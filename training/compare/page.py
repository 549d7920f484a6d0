"""The page of a study: one HTML file that holds its figures and loads nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs import find_task, tasks
from training.collect import environments
from training.compare import grouped, tables
from training.compare.charts import curve_charts, first_chart, pareto_charts, training_charts
from training.compare.config import CurveConfig, StudyConfig
from training.compare.results import commits
from training.compare.runs import TrainingJob
from training.compare.summary import (
    Summary,
    at_ceiling,
    headline,
    lead_sentences,
    of_controls,
)
from training.reports.figures import OVERLAID
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

__all__ = ["render"]

_FLOPS = (
    "m: random projections of a feature map; n: of a hybrid's coefficient; F: length of a feature "
    "vector; d: dimension of queries and keys; FLOPs: floating-point operations, 2 a multiply-add."
)


def render(
    study: StudyConfig, out: Path, summary: Summary, command: str, runs: Sequence[TrainingJob],
    missing: Sequence[str], failed: Sequence[str] = (),
) -> str:  # fmt: skip
    """The page as text, the same for the same files.

    Args:
        study: its configuration.
        out: the directory of the results.
        summary: of the results.
        command: shell command that runs the study.
        runs: all training runs, seeds outermost.
        missing: labels of missing jobs.
        failed: a reason for each of them that failed.
    """
    task = find_task(runs[0].job.env_id) if runs else None
    one_seed = any(row.scores.seeds == 1 for row in summary.variants.values())
    alone = " (one seed: over scenes alone)" if one_seed else ""
    unfinished, state = sections_of_state("study", missing, failed)
    sentences = headline(study, summary)
    verdict = lead_sentences(sentences)[: 3 - len(unfinished)]
    more = [sentence for sentence in sentences if sentence not in verdict]
    names = [variant.name for variant in study.arms]
    shared = [legend(names)] if len(names) <= OVERLAID else []
    best, of_groups = grouped.best_pairs(study, out), grouped.group_pairs(study)
    sections = [
        _results(study, out, summary, runs, alone),
        Section("Not finite", _if(grouped.stops(runs), note(
            "Training these gave numbers that are not finite, and would give them again: they have "
            "no policy, and are not trained again. After a change, move their directories away."))),
        Section(f"The best {study.best_seeds} of {len(study.seeds)} seeds", _averaged(
            study, runs, best, grouped.best(study, out, best),
            f", the best {study.best_seeds} seeds",
            "The best by the reward of the evaluation above, and their mean by the same episodes: "
            "picking the best is biased upward, the more so the more seeds differ. Compare "
            "variants by all seeds. The standard deviation is over the seeds.")),
        Section("Groups of variants", _averaged(
            study, runs, of_groups, grouped.groups(summary, runs, of_groups), ", by group",
            "Means over the variants of a group, each variant the mean of its seeds; variants that "
            "stopped, or are not evaluated yet, are left out of them. Curves are means over all "
            "finished runs of a group.")),
        Section("Cost against reward", _costs(study, summary, names)),
        Section("A decision's time and memory", _if(tables.decisions(summary), note(
            "Milliseconds:", "CPU time of one thread" if study.device == "cpu" else
            f"time on {study.device}", "over the observations of an episode, all variants in turn; "
            "half of the decisions take no longer than p50, 99 of 100 no longer than p99. "
            "Memories are full by then, where they have an end. Policies are as they are "
            "initialised: training changes the numbers in one, not what it computes."))),
        Section("Training", [*shared, charts(training_charts(study, runs)), note(
            "Mean over the training seeds, the standard deviation over them shaded. Finished runs "
            "only.")]),
        Section("Held-out loss", _if(tables.held_out(study, runs), note(
            "The loss of cloning on episodes that were held out of it, in the last iteration. Runs "
            "of one seed hold out the same episodes where they learn from one recording, or in one "
            "iteration from an expert in one environment. Others hold out their own: episodes of "
            "the policy, or of an expert with another camera. How far those differ is in the loss "
            "too."))),
        *(_curve(study, curve, out, runs, shared, alone) for curve in study.curves),
        _stages(study, out, runs),
        _gaze(study, runs),
        _budget(study, runs),
        Section("Controls and further comparisons", [
            bullets(filter(None, [of_controls(study, summary), *more]))], folded=True),
        *state,
        _provenance(study, summary, command, runs),
    ]  # fmt: skip
    first = first_chart(study, summary)
    return page(
        study.title, first, [*verdict, *unfinished], sections, image(task.scene if task else None)
    )


def _if(table: Table | Sequence[Table] | None, *parts: Any) -> list[Any]:
    """A table or several and what belongs to them; nothing without."""
    if not table:
        return []
    return [*([table] if isinstance(table, Table) else table), *parts]


def _results(
    study: StudyConfig, out: Path, summary: Summary, runs: Sequence[TrainingJob], alone: str
) -> Section:
    """The table of the results, first of all."""
    task = find_task(runs[0].job.env_id) if runs else None
    last, ceiling = study.evaluation_seed + study.episodes - 1, at_ceiling(summary)
    table = tables.results(study, out, summary, runs)
    at_end = (
        f"= marks {len(ceiling)} of {len(summary.variants)} variants that are at the ceiling: "
        "success does not tell them apart. See where they can fail: curves, held-out loss."
    )
    return Section("Results", [
        table or note("Nothing is measured yet."),
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
    study: StudyConfig, runs: Sequence[TrainingJob], pairs: grouped.Pairs, table: Table | None,
    of: str, text: str,
) -> list[Any]:  # fmt: skip
    """The parts of a section on the best seeds, or on groups of variants; empty without any."""
    few = [legend(list(pairs))] if len(pairs) <= OVERLAID else []
    drawn = charts(training_charts(study, runs, pairs, of)) if pairs else None
    return _if(table, *few, drawn, note(text))


def _costs(study: StudyConfig, summary: Summary, names: Sequence[str]) -> list[Any]:
    fronts = [f"by {kind} FLOPs {', '.join(own)}" for kind, own in summary.front.items() if own]
    return [
        legend(names), charts(pareto_charts(study, summary)),
        note(
            "Bars: 95 % interval of the mean reward over seeds and scenes. Ringed and joined: the "
            "Pareto front, variants whose mean none beats at as low a cost, controls aside"
            f"{': ' if fronts else ''}{'; '.join(fronts)}. Scripted policies that are far off are "
            "in the table alone."
        ),
    ]  # fmt: skip


def _curve(
    study: StudyConfig, curve: CurveConfig, out: Path, runs: Sequence[TrainingJob],
    shared: Sequence[Any], alone: str,
) -> Section:  # fmt: skip
    repair = (
        f"Depth images as with policy.repair = {curve.repair}, without training by it."
        if curve.repair else None
    )  # fmt: skip
    return Section(curve.name[:1].upper() + curve.name[1:], [
        *shared, charts(curve_charts(study, curve, out)),
        note(
            f"The trained policies, no training in between; {curve.episodes} scenes at each point. "
            f"Bands: 95 % interval over seeds and scenes{alone}.", repair, _trained_on(curve, runs),
        ),
        tables.controls(study, curve, out),
    ])  # fmt: skip


def _stages(study: StudyConfig, out: Path, runs: Sequence[TrainingJob]) -> Section:
    judged = [one.full_label for task in tasks() if (one := task.headline_outcome) is not None]
    measures = "".join(f", or {label}" for label in judged)
    return Section("What each stage brings", _if(
        tables.stages(study, out, runs),
        note(f"{study.headline}: success{measures}, with 95 % intervals; rewards."),
    ))  # fmt: skip


def _gaze(study: StudyConfig, runs: Sequence[TrainingJob]) -> Section:
    found = tables.gaze(study, runs)
    if found is None:
        return Section("Gaze of the policies", [])
    edge = found["edge"]
    return Section("Gaze of the policies", [
        found["table"],
        note(
            f"What they keep of the views of the oracle on {found['episodes']} evaluation terrains."
            f" {edge[:1].upper()}{edge[1:]} is where depth crosses {found['past_m']} m, "
            f"{found['between']}, {found['neighbours']}."
        ),
        note(found["together"]),
    ])  # fmt: skip


def _budget(study: StudyConfig, runs: Sequence[TrainingJob]) -> Section:
    found = tables.budget(study, runs)
    if found is None:
        return Section("Budget", [note("No run is finished yet.")])
    return Section("Budget", [
        found["table"],
        note(f"{found['sentence']}.",
             "Wall time is that of the machine and its load; it compares no variants."),
    ])  # fmt: skip


def _provenance(
    study: StudyConfig, summary: Summary, command: str, runs: Sequence[TrainingJob]
) -> Section:
    """How to run the study again, and where its figures come from."""
    origin = summary.provenance
    measured = None
    if origin:
        versions, machine = origin.get("versions", {}), origin.get("hardware", {})
        said = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        measured = (
            f"Latencies were measured with Python {origin['python']}, {said}, on "
            f"{machine.get('cpu') or 'an unknown machine'}, {machine.get('cores') or '?'} cores, "
            f"device {study.device}."
        )
    on_cpu = {study.device, *(getattr(run.job, "device", "cpu") for run in runs)} == {"cpu"}
    same = "Where the versions and the machine are the same, so are all figures but the times."
    return Section("How to run it again", [
        pre(command),
        note(
            "With --out and the study's directory it resumes. A record, such as the directory of a "
            "published page, starts a new --out with --unpack.",
            f"Training seeds {', '.join(map(str, study.seeds))}.", same if on_cpu else None,
            f"The runs were made at {'; '.join(commits(runs)) or 'no commit yet'}.", measured,
        ),
    ], folded=True)  # fmt: skip


def _trained_on(curve: CurveConfig, runs: Sequence[TrainingJob]) -> str:
    """What the first variant's stages had for the settings that a curve changes."""
    keys = list(dict.fromkeys(key for point in curve.points for key in point.set))
    stages = []
    for run in runs:
        if (run.variant.name, run.seed) != (runs[0].variant.name, runs[0].seed) or not keys:
            continue
        settings = environments.resolved(run.job.env_id, run.job.env)
        values = (f"{key} = {json.dumps(settings.get(key, 'the default'))}" for key in keys)
        stages.append(f"stage {run.stage + 1} ({run.trainer}) {', '.join(values)}")
    return f"Trained with: {'; '.join(stages)}." if stages else ""
