"""The tables of a study's page, each None where nothing of it is known yet."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from envs import Outcome
from training.analysis.gaze import Gaze, depth_edges
from training.analysis.intervals import mean_interval, seeds_interval
from training.compare.config import CurveConfig, PointConfig, StudyConfig
from training.compare.model_files import GazeJob, PolicyJob, VideoJob
from training.compare.results import Scores, finished_runs
from training.compare.runs import TrainingJob
from training.compare.summary import Row, Summary, at_ceiling, scores_at, scores_of
from training.io.state_files import read_json
from training.reports.html import Column, Table, around, between, millions, table_of

__all__ = ["budget", "controls", "decisions", "gaze", "held_out", "results", "stages"]


def results(
    study: StudyConfig, out: Path, summary: Summary, runs: Sequence[TrainingJob]
) -> Table | None:
    """What every variant and scripted policy came to on the task, and what it costs."""
    rows = [*summary.variants.values(), *summary.references.values()]
    ceiling, numbers = at_ceiling(summary), [variant.name for variant in study.arms]
    outcomes = [
        row.scores.headline for row in summary.variants.values() if _is_measured(row.scores)
    ]

    def name(row: Row) -> str:
        if row.name in study.references:
            return f"{row.name} (scripted)"
        baseline = " (baseline)" if row.name == study.baseline else ""
        return f"{numbers.index(row.name) + 1}. {row.name}{baseline}"

    def success(row: Row) -> str:
        return ("= " if row.name in ceiling else "") + _success(row.scores)

    def cost(key: str, shown: Callable[[Any], str]) -> Callable[[Row], str]:
        return lambda row: "-" if row.cost is None else shown(row.cost[key])

    columns: list[Column] = [
        ("variant", "", name),
        ("seeds", "", lambda row: "-" if row.name in study.references else row.scores.seeds),
        ("success", "of episodes, 95 % interval", success),
        *((one.label, f"{_unit(one)}95 % interval", lambda row: _measured(row.scores))
          for one in outcomes[:1] if one is not None),
        ("reward", "per episode, mean ± sd over seeds", _reward),
        ("ratio to baseline", "of rewards, 95 % interval",
         lambda row: around(row.ratio, row.ratio_interval)),
        ("ratio to oracle", "of success, 95 % interval",
         lambda row: around(row.of_oracle if row.of_oracle_interval else None,
                            row.of_oracle_interval)),
        ("attention", "MFLOPs a step", cost("attention", millions)),
        ("fewer", "times, than the baseline",
         lambda row: "-" if row.fewer is None else f"{row.fewer:.2f} ×"),
        ("total", "MFLOPs a step", cost("total", millions)),
        ("latency", "ms a step", cost("latency_ms", "{:.3f}".format)),
        ("parameters", "", cost("parameters", "{:,}".format)),
        ("files", "first seed's", lambda row: _files(out, row.name, runs)),
    ]  # fmt: skip
    return table_of(columns, rows) if rows else None


def _is_measured(scores: Scores) -> bool:
    return scores.measured is not None


def _unit(outcome: Outcome) -> str:
    """What the figures of an outcome are, before what their intervals are."""
    words = f"share of {outcome.of}" if outcome.kind == "share" and outcome.of else outcome.unit
    return f"{words}, " if words else ""


def _reward(row: Row) -> str:
    sd = row.scores.reward_sd
    reward = f"{row.scores.reward:.3f}"
    return reward if sd is None else Markup("{} <small>± {:.3f}</small>").format(reward, sd)


def _files(out: Path, name: str, runs: Sequence[TrainingJob]) -> str:
    directories = [run.directory for run in runs if run.variant.name == name]
    links = []
    for kind, product in (("video", VideoJob), ("policy", PolicyJob)):
        found = [path for path in map(product.path_of, directories) if path.is_file()]
        if found:
            place = found[0].relative_to(out).as_posix()
            links.append(Markup('<a href="{}">{}</a>').format(place, kind))
    return Markup(", ").join(links) or "-"


def _success(scores: Scores) -> str:
    """Share of the episodes that succeeded, and its 95% interval."""
    low, high = scores.success_interval
    return between(f"{100 * scores.success:.1f} %", f"{100 * low:.1f}", f"{100 * high:.1f}")


def _measured(scores: Scores) -> str:
    """The outcome that the task is judged by first, and its 95% interval; a dash without."""
    return "-" if scores.mean_measured is None else around(*scores.mean_measured)


def _gain(before: np.ndarray, after: np.ndarray, decimals: int, shares: bool) -> str:
    """How much more, (seeds, scenes) paired, of shares in points of 100, and the 95% interval; a
    dash where a seed has one of them alone."""
    if before.shape != after.shape:
        return "-"
    more = (100 if shares else 1) * (after - before)
    low, high = mean_interval(more)
    return between(f"{more.mean():+.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}")


def controls(study: StudyConfig, curve: CurveConfig, out: Path) -> Table | None:
    """How much more of what the task is judged by each control reaches than all kinds of attention
    together, at each point of a curve.

    Seeds and scenes are paired; intervals are over both. None without a control, without several
    kinds of attention, or where a policy is not evaluated yet. UserError when a file is damaged.
    """
    kinds = [variant.name for variant in study.arms if not variant.control]
    rivals = [variant.name for variant in study.arms if variant.control]
    if not rivals or len(kinds) < 2:
        return None
    points = sorted(curve.points, key=lambda point: point.x)
    found = {
        (n, p.x): scores_of(study, out, n, curve, p) for n in (*kinds, *rivals) for p in points
    }
    there = {place: scores for place, scores in found.items() if scores is not None}
    if len(there) < len(found) or len({one.outcomes.shape for one in there.values()}) > 1:
        return None
    shares = all(scores.are_shares for scores in there.values())

    def together(x: float) -> np.ndarray:
        return np.mean([there[name, x].outcomes for name in kinds], axis=0)

    def mean(x: float) -> str:
        return f"{100 * together(x).mean():.0f} %" if shares else f"{together(x).mean():.3f}"

    def more(name: str) -> Callable[[float], str]:
        return lambda x: _gain(together(x), there[name, x].outcomes, 0 if shares else 3, shares)

    remark = f"{'points ' if shares else ''}more, 95 % interval"
    columns: list[Column] = [
        (curve.xlabel, "", "{:g}".format),
        ("all kinds of attention", "together", mean),
        *((name, remark, more(name)) for name in rivals),
    ]
    return table_of(columns, [point.x for point in points])


_DECISIONS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "attention": ("attention", "MFLOPs", millions),
    "total": ("total", "MFLOPs", millions),
    "p50_ms": ("p50", "ms", "{:.3f}".format),
    "p99_ms": ("p99", "ms", "{:.3f}".format),
    "state": ("state", "numbers", "{:,}".format),
}
"""Field of `evaluations.Cost`: title, unit, and how a value is written."""


def decisions(summary: Summary) -> Table | None:
    """Time and memory of a decision of every variant; None where no times over an episode were
    measured. Columns that no variant has are left out, as is the state where all have none."""
    costs = {name: row.cost for name, row in summary.variants.items() if row.cost is not None}
    if all(cost["p50_ms"] is None for cost in costs.values()):
        return None
    kinds = [key for key in _DECISIONS if any(cost[key] is not None for cost in costs.values())]
    if not any(cost["state"] for cost in costs.values()):
        kinds = [key for key in kinds if key != "state"]

    def cell(key: str) -> Column:
        title, unit, shown = _DECISIONS[key]
        return title, unit, lambda one: "-" if one[1][key] is None else shown(one[1][key])

    return table_of([("variant", "", lambda one: one[0]), *map(cell, kinds)], costs.items())


def held_out(study: StudyConfig, runs: Sequence[TrainingJob]) -> list[Table]:
    """The last held-out loss of every run that cloned, by variant; a table for every such stage."""
    tables = []
    for stage in range(len(study.stages)):
        losses = {variant.name: _last_losses(runs, variant.name, stage) for variant in study.arms}
        base = losses[study.baseline]
        of_stage = f"of stage {stage + 1}, " if len(study.stages) > 1 else ""
        rows = []
        for name, own in losses.items():
            more = [own[seed] - base[seed] for seed in own if seed in base]
            against = "-" if name == study.baseline or not more else _over_seeds(more, "+#.3g")
            by_seed = [f"{own[seed]:#.4g}" if seed in own else "-" for seed in study.seeds]
            if own:
                rows.append([name, _over_seeds(list(own.values()), "#.4g"), against, *by_seed])
        head = [
            ("variant", ""), ("held-out loss", f"{of_stage}mean, 95 % interval over seeds"),
            ("more than the baseline", "of the same seeds, 95 % interval"),
            *((f"seed {seed}", "") for seed in study.seeds),
        ]  # fmt: skip
        tables += [Table(head, rows)] if rows else []
    return tables


def _last_losses(runs: Sequence[TrainingJob], variant: str, stage: int) -> dict[int, float]:
    """The last held-out loss of a variant's finished runs, by seed."""
    columns = {seed: one.columns for seed, one in finished_runs(runs, variant, stage).items()}
    last = {seed: float(one["val_loss"][-1]) for seed, one in columns.items() if "val_loss" in one}
    return {seed: loss for seed, loss in last.items() if math.isfinite(loss)}


def _over_seeds(values: Sequence[float], form: str) -> str:
    """The mean, and its interval where there are several seeds."""
    return around(float(np.mean(values)), seeds_interval(np.array(values)), form)


def stages(study: StudyConfig, out: Path, runs: Sequence[TrainingJob]) -> Table | None:
    """The headline variant's policy after each stage, on the task and along the curves; None where
    earlier stages are not evaluated. UserError when a file is damaged."""
    if not study.compare_stages or study.headline is None:
        return None
    of_variant = [run for run in runs if run.variant.name == study.headline]
    by_stage = [
        [run.directory.name for run in of_variant if run.stage == i]
        for i in range(len(study.stages))
    ]
    places: list[tuple[str, CurveConfig | None, PointConfig | None]] = [("the task", None, None)]
    places += [
        (f"{curve.name}, {point.x:g}", curve, point)
        for curve in study.curves
        for point in curve.points
        if not curve.is_of_the_task(point)
    ]
    rows, all_shares = [], True
    for name, curve, point in places:
        found = [scores_at(study, out, who, curve, point) for who in by_stage]
        there = [scores for scores in found if scores is not None]
        if len(there) == len(by_stage):
            shares = there[0].are_shares
            all_shares = all_shares and shares
            gain = _gain(there[0].outcomes, there[-1].outcomes, 1 if shares else 3, shares)
            rows.append([name, *map(_after_stage, there), gain])
    head = [
        ("condition", ""),
        *((f"after stage {i + 1}", stage.trainer) for i, stage in enumerate(study.stages)),
        ("gain", f"{'points of 100, ' if all_shares else ''}95 % interval"),
    ]
    return Table(head, rows) if rows else None


def _after_stage(scores: Scores) -> str:
    outcome = _measured(scores) if _is_measured(scores) else _success(scores)
    return outcome + f"; {scores.reward:.3f}"


_ACROSS = (
    "from one row of the image to the next, as it was measured then: where columns run ahead, as "
    "with the cameras of SteppingStones-v0, these edges are to the left and right, such as stones' "
    "sides"
)


def gaze(study: StudyConfig, runs: Sequence[TrainingJob]) -> dict[str, Any] | None:
    """Where policies look, and the words of the remark below; None where it is not measured."""
    measured = [
        (run, read_json(Gaze, path))
        for run in runs
        if (path := GazeJob.path_of(run.directory)).is_file()
    ]
    variants = {f"{i + 1}. {variant.name}": variant for i, variant in enumerate(study.arms)}
    by_variant = {
        name: [one for run, one in measured if run.variant == variant]
        for name, variant in variants.items()
    }
    rows = [(name, found) for name, found in by_variant.items() if found]
    if not rows:
        return None
    edges = depth_edges(measured[0][0].job.env_id)
    ahead = all(one.ahead for _, one in measured)
    edge = edges.edge if ahead else "an edge between rows"

    def share(key: str) -> Callable[[Any], str]:
        return lambda row: f"{100 * np.mean([getattr(one, key) for one in row[1]]):.1f} %"

    def on_edges(row: Any) -> str:
        kept = [one.edges_kept for one in row[1]]
        spread = f" ± {100 * np.std(kept, ddof=1):.1f}" if len(kept) > 1 else ""
        return f"{100 * np.mean(kept):.1f}{spread} %"

    def times(row: Any) -> str:
        ratios = [one.edges_kept / one.edges if one.edges else math.nan for one in row[1]]
        return f"{np.mean(ratios):.2f} ×"

    columns: list[Column] = [
        ("variant", "", lambda row: row[0]), ("seeds", "", lambda row: len(row[1])),
        (f"on {edge}", "of the tokens kept, mean ± sd", on_edges),
        ("chance", "of all tokens", share("edges")), ("times", "chance", times),
        (edges.past, "of the pixels kept", share("past_kept")),
        ("chance", "of all pixels", share("past")),
    ]  # fmt: skip
    policies = [(run.seed, one) for run, one in measured if not run.variant.control]
    return {
        "table": table_of(columns, rows), "edge": edge, "past_m": f"{edges.past_m:g}",
        "between": edges.between, "episodes": GazeJob.episodes,
        "neighbours": "from one pixel to the next ahead" if ahead else _ACROSS,
        "together": _together(policies, edge, edges.past) if policies else "",
    }  # fmt: skip


def _together(policies: list[tuple[int, Gaze]], edge: str, past: str) -> str:
    """What all policies with attention keep, by seed too, and how many of them more than chance."""
    seeds = np.array([seed for seed, _ in policies])

    def kept(part: str) -> str:
        shares = np.array([getattr(one, f"{part}_kept") for _, one in policies])
        more = sum(getattr(one, f"{part}_kept") > getattr(one, part) for _, one in policies)
        by_seed = [f"{100 * shares[seeds == seed].mean():.1f}" for seed in dict.fromkeys(seeds)]
        return (
            f"{100 * shares.mean():.1f} % (by seed {', '.join(by_seed)} %), "
            f"{more} of {len(policies)} more than chance"
        )

    return f"All kinds of attention: on {edge} {kept('edges')}; {past} {kept('past')}."


_SPENT = {
    "iteration": "iterations", "episodes": "episodes", "env_steps": "environment steps",
    "decisions": "decisions", "frames": "frames",
}  # fmt: skip
"""What a run took: column of metrics.csv and what the page calls it."""


def budget(study: StudyConfig, runs: Sequence[TrainingJob]) -> dict[str, Any] | None:
    """What finished runs took, by variant and stage, and a sentence on what was the same."""
    rows = []
    same: dict[str, bool] = {}
    for stage, settings in enumerate(study.stages):
        values: dict[str, set[float]] = {}
        for variant in study.arms:
            curves = finished_runs(runs, variant.name, stage).values()
            spent = [{key: column[-1] for key, column in one.columns.items()} for one in curves]
            if not spent:
                continue
            for one, key in ((one, key) for one in spent for key in _SPENT if key in one):
                values.setdefault(key, set()).add(one[key])
            minutes = np.mean([one.get("wall_s", 0.0) for one in spent]) / 60
            changes = (
                Markup("<code>{}</code>").format(json.dumps(variant.set)) if stage == 0 else ""
            )
            rows.append([variant.name, f"{stage + 1} ({settings.trainer})", len(spent),
                         *(_range([one[key] for one in spent if key in one]) for key in _SPENT),
                         f"{minutes:.1f}", changes])  # fmt: skip
        same |= {key: same.get(key, True) and len(found) == 1 for key, found in values.items()}
    if not rows:
        return None
    alike, other = ([_SPENT[key] for key in same if same[key] is one] for one in (True, False))
    text = f"All finished runs of a stage took the same {_listed(alike)}" if alike else ""
    if other:
        text += f"{', but not' if alike else 'Runs took different'} {_listed(other)}"
    head = [("variant", ""), ("stage", ""), ("finished", "seeds"),
            *((name, "a run") for name in _SPENT.values()),
            ("wall time", "minutes a run, mean"), ("what makes the variant", "")]  # fmt: skip
    return {"table": Table(head, rows, text=len(head) - 1), "sentence": text}


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _range(values: Sequence[float]) -> str:
    """A number, or the smallest and the largest of several seeds."""
    ends = list(dict.fromkeys(f"{v:,.0f}" for v in (min(values), max(values)))) if values else ["-"]
    return " – ".join(ends)
