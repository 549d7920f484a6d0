"""The tables of a study's page, each None where none of its figures is known yet."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from envs import Outcome
from training.analysis.gaze import Gaze, depth_edges
from training.analysis.intervals import mean_interval
from training.compare.claims import at_ceiling
from training.compare.config import CurveConfig, PointConfig
from training.compare.measures import Cell, ResultsTable
from training.compare.model_files import GazeJob, PolicyJob, VideoJob
from training.compare.results import Results, Row, Scores
from training.compare.runs import TrainingJob
from training.io.state_files import read_json
from training.reports.html import Column, Table, around, between, millions, table_of

Pairs = Mapping[str, Sequence[tuple[str, int]]]
"""Variants and seeds whose mean a line or row shows, by its name."""


def results_table(results: Results) -> Table | None:
    """The results of every variant and scripted policy on the task, and their costs."""
    study = results.study
    scripted = results.references.values()
    rows = [*results.variants.values(), *results.blind.values(), *scripted]
    ceiling = at_ceiling(results)
    outcomes = [
        row.scores.headline for row in results.variants.values() if row.scores.measured is not None
    ]

    def name(row: Row) -> str:
        if row.name in study.references:
            return f"{row.name} (scripted)"
        if row.name not in results.names:
            return row.name
        baseline = " (baseline)" if row.name == study.baseline else ""
        return f"{results.names.index(row.name) + 1}. {row.name}{baseline}"

    def success(row: Row) -> str:
        return ("= " if row.name in ceiling else "") + _success(row.scores)

    def cost(key: str, shown: Callable[[Any], str]) -> Callable[[Row], str]:
        return lambda row: "-" if row.cost is None else shown(row.cost[key])

    def files(row: Row) -> str:
        directories = [run.directory for run in results.runs if run.variant.name == row.name]
        links = []
        for kind, product in (("video", VideoJob), ("policy", PolicyJob)):
            found = [path for path in map(product.path_of, directories) if path.is_file()]
            if found:
                place = found[0].relative_to(results.out).as_posix()
                links.append(Markup('<a href="{}">{}</a>').format(place, kind))
        return Markup(", ").join(links) or "-"

    columns: list[Column] = [
        ("variant", "", name),
        ("seeds", "", lambda row: "-" if row.name in study.references else row.scores.seeds),
        ("success", "of episodes, 95 % interval", success),
        *((one.label, f"{_unit(one)}95 % interval", lambda row: _measured(row.scores))
          for one in outcomes[:1] if one is not None),
        ("reward", "per episode, mean ± sd over seeds",
         lambda row: _with_sd(row.scores.reward, row.scores.reward_sd)),
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
        ("files", "first seed's", files),
    ]  # fmt: skip
    return table_of(columns, rows) if rows else None


def _unit(outcome: Outcome) -> str:
    """The unit of an outcome's figures, before that of their intervals."""
    words = f"share of {outcome.of}" if outcome.kind == "share" and outcome.of else outcome.unit
    return f"{words}, " if words else ""


def _with_sd(mean: float, sd: float | None) -> str:
    small = "" if sd is None else Markup(" <small>± {:.3f}</small>").format(sd)
    return f"{mean:.3f}" + small


def _spread(values: Iterable[float]) -> str:
    """Mean and standard deviation of some values."""
    cell = Cell(tuple(values))
    return "-" if cell.mean is None else _with_sd(cell.mean, cell.sd)


def _percent(shares: Iterable[float]) -> str:
    found = list(shares)
    return f"{100 * np.mean(found):.1f} %" if found else "-"


def _success(scores: Scores) -> str:
    """Share of the episodes that succeeded, and its 95% interval."""
    low, high = scores.success_interval
    return between(f"{100 * scores.success:.1f} %", f"{100 * low:.1f}", f"{100 * high:.1f}")


def _measured(scores: Scores) -> str:
    """The outcome that the task is judged by first, and its 95% interval; a dash without."""
    return "-" if scores.mean_measured is None else around(*scores.mean_measured)


def best_pairs(results: Results) -> Pairs:
    """The best seeds of every variant with more seeds than are picked; empty if the study does not
    pick any."""
    most, found = results.study.best_seeds, {}
    for name in results.names if most is not None else ():
        scores = results.by_seed(name)
        if most is not None and len(scores) > most:
            order = sorted(scores, key=lambda seed: scores[seed].reward, reverse=True)
            found[name] = [(name, seed) for seed in sorted(order[:most])]
    return found


def best(results: Results, pairs: Pairs) -> Table | None:
    """Reward and the task's outcome, of all seeds and of the best; None without any."""
    rows = []
    for name, kept in pairs.items():
        scores = results.by_seed(name)
        seeds = [seed for _, seed in kept]
        rows.append((name, [*scores.values()], [scores[seed] for seed in seeds], seeds))
    of_best = f"of the best {results.study.best_seeds}"
    columns: list[Column] = [
        ("variant", "", lambda row: row[0]),
        ("seeds", "", lambda row: len(row[1])),
        ("reward", "of all, mean ± sd", lambda row: _spread(one.reward for one in row[1])),
        ("reward", f"{of_best}, mean ± sd", lambda row: _spread(one.reward for one in row[2])),
        ("success", "of all", lambda row: _percent(one.success for one in row[1])),
        ("success", of_best, lambda row: _percent(one.success for one in row[2])),
        ("the best", "seeds", lambda row: ", ".join(map(str, row[3]))),
    ]
    return table_of(columns, rows) if rows else None


def group_pairs(results: Results) -> Pairs:
    """Variants and seeds of every group; none where the study has no groups."""
    found: dict[str, list[tuple[str, int]]] = {}
    for one in results.study.arms:
        if one.group is not None:
            seeds = results.study.seeds
            found.setdefault(one.group, []).extend((one.name, seed) for seed in seeds)
    return found


def groups(results: Results, pairs: Pairs) -> Table | None:
    """The mean over the variants of every group that were evaluated; None without groups."""
    rows = []
    for group, own in pairs.items():
        names = dict.fromkeys(name for name, _ in own)
        known = [results.variants[name].scores for name in names if name in results.variants]
        rows.append((group, names, known))

    def of(value: Callable[[Scores], float]) -> Callable[[Any], str]:
        return lambda row: _spread(value(one) for one in row[2])

    def stopped(row: Any) -> str:
        trained = [run for run in results.runs if run.variant.group == row[0] and run.finished]
        names = [run.variant.name for run in trained if run.stop is not None]
        of_all = f"{len(names)} of {len(trained)}"
        return f"{of_all}: {', '.join(dict.fromkeys(names))}" if names else of_all

    outcomes = {one.headline.label for *_, known in rows for one in known if one.headline}
    columns: list[Column] = [
        ("group", "", lambda row: row[0]),
        ("variants", "evaluated, of all", lambda row: f"{len(row[2])} of {len(row[1])}"),
        ("reward", "mean ± sd over the variants", of(lambda one: one.reward)),
        *((name, "mean ± sd over the variants", of(lambda one: float(one.outcomes.mean())))
          for name in sorted(outcomes)),
        ("success", "mean over the variants", lambda row: _percent(s.success for s in row[2])),
        ("not finite", "runs, of those trained", stopped),
    ]  # fmt: skip
    return table_of(columns, rows) if rows else None


def stops(results: Results) -> Table | None:
    """Runs that stopped for good, and why; None without any."""
    columns: list[Column] = [
        ("variant", "", lambda row: row[0].variant.name),
        ("seed", "", lambda row: row[0].seed),
        ("stage", "", lambda row: f"{row[0].stage + 1} ({row[0].trainer})"),
        ("iterations", "made", lambda row: f"{row[1].iterations} of {row[0].job.iterations}"),
        ("why", "", lambda row: row[1].reason),
    ]
    rows = [(run, stop) for run in results.runs if (stop := run.stop) is not None]
    return table_of(columns, rows, text=4) if rows else None


def _gain(before: np.ndarray, after: np.ndarray, decimals: int, shares: bool) -> str:
    """Mean difference of paired (seeds, scenes), of shares in percentage points, and its 95%
    interval; a dash where a seed has only one of the two."""
    if before.shape != after.shape:
        return "-"
    more = (100 if shares else 1) * (after - before)
    low, high = mean_interval(more)
    return between(f"{more.mean():+.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}")


def controls(results: Results, curve: CurveConfig) -> Table | None:
    """Difference of the task's outcome between each control and all kinds of attention together, at
    each point of a curve.

    Seeds and scenes are paired; intervals are over both. None without a control, without several
    kinds of attention, or where a policy is not evaluated yet. UserError when a file is damaged.
    """
    kinds = [variant.name for variant in results.study.arms if not variant.control]
    rivals = [variant.name for variant in results.study.arms if variant.control]
    if not rivals or len(kinds) < 2:
        return None
    points = sorted(curve.points, key=lambda point: point.x)
    found = {(n, p.x): results.scores(n, curve, p) for n in (*kinds, *rivals) for p in points}
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
"""Field of `model_files.Cost`: title, unit, and how a value is written."""


def decisions(results: Results) -> Table | None:
    """Time and memory of a decision of every variant; None where no times over an episode were
    measured. Columns that no variant has are left out, as is the state where all have none."""
    costs = {name: row.cost for name, row in results.variants.items() if row.cost is not None}
    if all(cost["p50_ms"] is None for cost in costs.values()):
        return None
    kinds = [key for key in _DECISIONS if any(cost[key] is not None for cost in costs.values())]
    if not any(cost["state"] for cost in costs.values()):
        kinds = [key for key in kinds if key != "state"]

    def cell(key: str) -> Column:
        title, unit, shown = _DECISIONS[key]
        return title, unit, lambda one: "-" if one[1][key] is None else shown(one[1][key])

    return table_of([("variant", "", lambda one: one[0]), *map(cell, kinds)], costs.items())


def held_out(results: Results) -> list[Table]:
    """The last held-out loss of every run that cloned, by variant; a table for every such stage."""
    study, tables = results.study, []
    for stage in range(len(study.stages)):
        losses, rows = _last_losses(results, stage), []
        of_stage = f"of stage {stage + 1}, " if len(study.stages) > 1 else ""
        for name in losses.models:
            own, more = losses.values(name, "loss"), Cell(())
            if name != study.baseline:
                more = losses.difference(name, study.baseline, "loss")
            by_seed = [f"{own[seed]:#.4g}" if seed in own else "-" for seed in study.seeds]
            mean = _over_seeds(losses.cell(name, "loss"), "#.4g")
            rows.append([name, mean, _over_seeds(more, "+#.3g"), *by_seed])
        head = [
            ("variant", ""), ("held-out loss", f"{of_stage}mean, 95 % interval over seeds"),
            ("more than the baseline", "of the same seeds, 95 % interval"),
            *((f"seed {seed}", "") for seed in study.seeds),
        ]  # fmt: skip
        tables += [Table(head, rows)] if rows else []
    return tables


def _last_losses(results: Results, stage: int) -> ResultsTable:
    """The last held-out losses of finished runs."""
    found: dict[str, dict[int, dict[str, float | None]]] = {}
    for name in results.names:
        for seed, curve in results.finished(name, stage).items():
            last = float(curve.columns["val_loss"][-1]) if "val_loss" in curve.columns else math.nan
            if math.isfinite(last):
                found.setdefault(name, {})[seed] = {"loss": last}
    return ResultsTable(found)


def _over_seeds(cell: Cell, form: str) -> str:
    """The mean, and its interval where there are several seeds."""
    return around(cell.mean, cell.interval, form)


def stages(results: Results) -> Table | None:
    """The headline variant's policy after each stage, on the task and along the curves; None where
    earlier stages are not evaluated. UserError when a file is damaged."""
    study = results.study
    if not study.compare_stages or study.headline is None:
        return None
    of_variant = [run for run in results.runs if run.variant.name == study.headline]
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
        found = [results.of_policies(files, curve, point) for files in by_stage]
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
    outcome = _success(scores) if scores.measured is None else _measured(scores)
    return outcome + f"; {scores.reward:.3f}"


_ACROSS = (
    "from one row of the image to the next, as it was measured then: where columns run ahead, as "
    "with the cameras of SteppingStones-v0, these edges are to the left and right, such as stones' "
    "sides"
)


def gaze(results: Results) -> tuple[Table, str, str] | None:
    """Table of gaze statistics with two remarks; None if they were not measured."""
    files = [(run, GazeJob.path_of(run.directory)) for run in results.runs]
    measured = [(run, read_json(Gaze, path)) for run, path in files if path.is_file()]
    rows = []
    for i, variant in enumerate(results.study.arms):
        own = [one for run, one in measured if run.variant == variant]
        kept = [one.edges_kept for one in own]
        if own:
            sd = f" ± {100 * np.std(kept, ddof=1):.1f}" if len(own) > 1 else ""
            times = [one.edges_kept / one.edges if one.edges else math.nan for one in own]
            rows.append([
                f"{i + 1}. {variant.name}", len(own), f"{100 * np.mean(kept):.1f}{sd} %",
                _percent(one.edges for one in own), f"{np.mean(times):.2f} ×",
                _percent(one.past_kept for one in own), _percent(one.past for one in own),
            ])  # fmt: skip
    if not rows:
        return None
    edges = depth_edges(measured[0][0].job.env_id)
    ahead = all(one.ahead for _, one in measured)
    edge = edges.edge if ahead else "an edge between rows"
    head = [
        ("variant", ""), ("seeds", ""), (f"on {edge}", "of the tokens kept, mean ± sd"),
        ("chance", "of all tokens"), ("times", "chance"), (edges.past, "of the pixels kept"),
        ("chance", "of all pixels"),
    ]  # fmt: skip
    neighbours = "from one pixel to the next ahead" if ahead else _ACROSS
    remark = (
        f"What they keep of the views of the oracle on {GazeJob.episodes} evaluation terrains. "
        f"{edge[:1].upper()}{edge[1:]} is where depth crosses {edges.past_m:g} m, "
        f"{edges.between}, {neighbours}."
    )
    policies = [(run, one) for run, one in measured if not run.variant.control]
    return Table(head, rows), remark, _together(policies, edge, edges.past)


def _together(policies: list[tuple[TrainingJob, Gaze]], edge: str, past: str) -> str:
    """The shares that all policies with attention keep, by seed too, and how many exceed chance."""
    if not policies:
        return ""
    seeds = np.array([run.seed for run, _ in policies])

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
"""Columns of metrics.csv that count the effort of a run, and their names on the page."""


def budget(results: Results) -> tuple[Table, str] | None:
    """The effort of finished runs, by variant and stage, and a sentence on what they share."""
    rows = []
    same: dict[str, bool] = {}
    for stage, settings in enumerate(results.study.stages):
        values: dict[str, set[float]] = {}
        for variant in results.study.arms:
            curves = results.finished(variant.name, stage).values()
            spent = [{key: column[-1] for key, column in one.columns.items()} for one in curves]
            if not spent:
                continue
            for one, key in ((one, key) for one in spent for key in _SPENT if key in one):
                values.setdefault(key, set()).add(one[key])
            minutes = np.mean([one.get("wall_s", 0.0) for one in spent]) / 60
            changes = Markup("<code>{}</code>").format(json.dumps(variant.set))
            rows.append([variant.name, f"{stage + 1} ({settings.trainer})", len(spent),
                         *(_range([one[key] for one in spent if key in one]) for key in _SPENT),
                         f"{minutes:.1f}", "" if stage else changes])  # fmt: skip
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
    return Table(head, rows, text=len(head) - 1), text


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _range(values: Sequence[float]) -> str:
    """A number, or the smallest and the largest of several seeds."""
    ends = list(dict.fromkeys(f"{v:,.0f}" for v in (min(values), max(values)))) if values else ["-"]
    return " – ".join(ends)
