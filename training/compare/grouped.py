"""Tables over parts of a study's runs: the best seeds, groups of variants, stopped runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from training.compare.config import StudyConfig, slug
from training.compare.results import Scores
from training.compare.runs import TrainingJob
from training.compare.summary import Summary, scores_at
from training.reports.html import Column, Table, table_of

__all__ = ["Pairs", "best", "best_pairs", "group_pairs", "groups", "stops"]

Pairs = Mapping[str, Sequence[tuple[str, int]]]
"""By the name of a line or row, what it is the mean of: names of variants, and seeds."""


def _by_seed(study: StudyConfig, out: Path, variant: str) -> dict[int, Scores]:
    """A variant's episodes on the task, by seed."""
    found = {s: scores_at(study, out, [f"{slug(variant)}-s{s}"], None, None) for s in study.seeds}
    return {seed: scores for seed, scores in found.items() if scores is not None}


def best_pairs(study: StudyConfig, out: Path) -> Pairs:
    """Seeds that earn the most, of every variant of which more are evaluated than are picked; none
    where the study asks for none."""
    if study.best_seeds is None:
        return {}
    found = {}
    for variant in study.arms:
        scores = _by_seed(study, out, variant.name)
        if len(scores) > study.best_seeds:
            order = sorted(scores, key=lambda seed: scores[seed].reward, reverse=True)
            found[variant.name] = [
                (variant.name, seed) for seed in sorted(order[: study.best_seeds])
            ]
    return found


def best(study: StudyConfig, out: Path, pairs: Pairs) -> Table | None:
    """Reward and what the task is judged by, of all seeds and of the best; None without any."""
    if not pairs:
        return None
    rows = []
    for name, kept in pairs.items():
        scores = _by_seed(study, out, name)
        seeds = [seed for _, seed in kept]
        rows.append((name, [*scores.values()], [scores[seed] for seed in seeds], seeds))
    columns: list[Column] = [
        ("variant", "", lambda row: row[0]),
        ("seeds", "", lambda row: len(row[1])),
        ("reward", "of all, mean ± sd", lambda row: _spread([one.reward for one in row[1]])),
        ("reward", f"of the best {study.best_seeds}, mean ± sd",
         lambda row: _spread([one.reward for one in row[2]])),
        ("success", "of all", lambda row: _reached(row[1])),
        ("success", f"of the best {study.best_seeds}", lambda row: _reached(row[2])),
        ("the best", "seeds", lambda row: ", ".join(map(str, row[3]))),
    ]  # fmt: skip
    return table_of(columns, rows)


def group_pairs(study: StudyConfig) -> Pairs:
    """Variants and seeds of every group; none where the study has no groups."""
    found: dict[str, list[tuple[str, int]]] = {}
    for variant in study.arms:
        if variant.group is not None:
            found.setdefault(variant.group, []).extend((variant.name, seed) for seed in study.seeds)
    return found


def groups(summary: Summary, runs: Sequence[TrainingJob], pairs: Pairs) -> Table | None:
    """The mean over the variants of every group that were evaluated; None without groups."""
    if not pairs:
        return None
    trained: dict[str | None, list[TrainingJob]] = {}
    for run in runs:
        if run.finished:
            trained.setdefault(run.variant.group, []).append(run)
    rows: list[tuple[str, list[str], list[Scores]]] = []
    for group, own in pairs.items():
        names = [*dict.fromkeys(name for name, _ in own)]
        known = [summary.variants[name].scores for name in names if name in summary.variants]
        rows.append((group, names, known))

    def of(value: Any) -> Any:
        return lambda row: _spread([value(one) for one in row[2]])

    outcomes = {one.headline.label for *_, all_ in rows for one in all_ if one.headline}
    columns: list[Column] = [
        ("group", "", lambda row: row[0]),
        ("variants", "evaluated, of all", lambda row: f"{len(row[2])} of {len(row[1])}"),
        ("reward", "mean ± sd over the variants", of(lambda one: one.reward)),
        *((name, "mean ± sd over the variants", of(lambda one: float(one.outcomes.mean())))
          for name in sorted(outcomes)),
        ("success", "mean over the variants", lambda row: _reached(row[2])),
        ("not finite", "runs, of those trained", lambda row: _stopped(trained.get(row[0], []))),
    ]  # fmt: skip
    return table_of(columns, rows)


def _stopped(trained: Sequence[TrainingJob]) -> str:
    names = [run.variant.name for run in trained if run.stop is not None]
    of = f"{len(names)} of {len(trained)}"
    return f"{of}: {', '.join(dict.fromkeys(names))}" if names else of


def stops(runs: Sequence[TrainingJob]) -> Table | None:
    """Runs that stopped for good, and why; None without any."""
    found = [(run, run.stop) for run in runs]
    rows = [
        [run.variant.name, run.seed, f"{run.stage + 1} ({run.trainer})",
         f"{stop.iterations} of {run.job.iterations}", stop.reason]
        for run, stop in found if stop is not None
    ]  # fmt: skip
    head = [("variant", ""), ("seed", ""), ("stage", ""), ("iterations", "made"), ("why", "")]
    return Table(head, rows, text=len(head) - 1) if rows else None


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{np.mean(values):.3f}"
    if len(values) < 2:
        return mean
    return Markup("{} <small>± {:.3f}</small>").format(mean, np.std(values, ddof=1))


def _reached(scores: Sequence[Scores]) -> str:
    return f"{100 * np.mean([one.success for one in scores]):.1f} %" if scores else "-"
