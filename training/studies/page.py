"""The page of a study: one HTML file that holds its figures and loads nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from envs import Outcome, find_task
from training.episodes import environments
from training.pages.figures import look
from training.pages.html import between, document, millions, note, table
from training.studies.budget import budget_section
from training.studies.cells import measured_cell, success_cell
from training.studies.charts import curve_charts, pareto_charts, training_charts
from training.studies.config import CurveConfig, StudyConfig
from training.studies.controls import controls_table
from training.studies.decisions import decisions_section
from training.studies.gaze_section import gaze_section
from training.studies.held_out import held_out_section
from training.studies.line_charts import OVERLAID
from training.studies.results import commits
from training.studies.runs import Run
from training.studies.shares import Film, Share
from training.studies.stages import stages_section
from training.studies.summary import Row, Summary, at_ceiling, headline, of_controls

__all__ = ["render"]

SYMBOLS = (
    "m: random projections of a feature map; n: of a hybrid's coefficient; F: length of a feature "
    "vector; d: dimension of queries and keys; FLOPs: floating-point operations, 2 a multiply-add."
)
_SHAPES = {
    "o": "M 9 5 a 4 4 0 1 0 8 0 a 4 4 0 1 0 -8 0", "s": "M 9.5 1.5 h 7 v 7 h -7 z",
    "^": "M 13 1 l 4.5 8 h -9 z",
}  # fmt: skip
"""Outlines of the points' shapes in the legend."""


def render(study: StudyConfig, out: Path, summary: Summary, command: str, runs: Sequence[Run],
           missing: Sequence[str], failed: Sequence[str] = ()) -> str:  # fmt: skip
    """The page as text, the same for the same files.

    Args:
        study: what is compared.
        out: where its results are.
        summary: what they come to.
        command: what runs it anew, as a shell takes it.
        runs: all training runs, seeds outermost.
        missing: what is not done yet, in words.
        failed: what of it was tried, and why it failed.
    """
    lead, *sentences = filter(None, [of_controls(study, summary), *headline(study, summary)])
    task = find_task(runs[0].job.env_id) if runs else None
    parts = [
        f"<h1>{escape(study.title)}</h1>",
        f"<p>{escape(task.what)}</p>" if task is not None and task.what else "",
        f'<p class="lead">{escape(lead)}</p>',
        *(f"<p>{escape(sentence)}</p>" for sentence in sentences),
        _alike(summary), _failed(failed), _missing(missing), note(SYMBOLS),
        "<h2>Results</h2>", _results(study, out, summary, runs), _results_note(study, summary),
        "<h2>Cost against reward</h2>", _legend(study), _charts(pareto_charts(study, summary)),
        note("Bars: 95 % interval of the mean reward over seeds and scenes. Ringed and "
             "joined: the Pareto front, arms whose mean none beats at as low a cost, controls aside"
             f"{_on_front(summary)}. Scripted policies that are far off are in the table alone."),
        *decisions_section(study, summary),
        "<h2>Training</h2>", _legend(study, over_each_other=True),
        _charts(training_charts(study, runs)),
        note("Mean over the training seeds, the standard deviation over them shaded. "
             "Finished runs only."),
        *held_out_section(study, runs),
        *_curves(study, out, runs, summary),
        *stages_section(study, out, runs),
        *gaze_section(study, runs),
        *budget_section(study, runs),
        "<h2>How to run it again</h2>", _origin(study, summary, command, runs),
    ]  # fmt: skip
    return document(study.title, parts)


def _alike(summary: Summary) -> str:
    """What is said of arms at the ceiling."""
    names = at_ceiling(summary)
    if not names:
        return ""
    text = (
        f"{len(names)} of {len(summary.arms)} arms are at the ceiling, marked with = below: by "
        "success the task does not tell them apart. See where they can fail: curves, held-out loss."
    )
    return f"<p>{escape(text)}</p>"


def _failed(failed: Sequence[str]) -> str:
    if not failed:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in failed)
    return (
        f'<div class="missing"><p>{len(failed)} parts failed when the study was last run, and are '
        f"tried again when it is rerun:</p><ul>{items}</ul></div>"
    )


def _missing(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    items = "".join(f"<li>{escape(label)}</li>" for label in missing[:200])
    return (
        f'<div class="missing"><p>The study is not finished: {len(missing)} of its parts are '
        f"missing, and every figure here is over what is there.</p><details><summary>Missing"
        f"</summary><ul>{items}</ul></details></div>"
    )


def _on_front(summary: Summary) -> str:
    """Who is on the Pareto front, by the cost."""
    fronts = [f"by {kind} FLOPs {', '.join(n)}" for kind, n in summary.front.items() if n]
    return f": {'; '.join(fronts)}" if fronts else ""


def _legend(study: StudyConfig, over_each_other: bool = False) -> str:
    """Colours and shapes of the arms; nothing where only lines `over_each_other` would need it and
    each arm has a panel with its name."""
    if over_each_other and len(study.arms) > OVERLAID:
        return ""

    def item(number: int, name: str) -> str:
        colour, dash, shape = look(number)
        line = f'stroke="{colour}" stroke-dasharray="{dash}"'
        return (
            f'<li><svg width="26" height="10" aria-hidden="true"><line x1="0" y1="5" x2="26" '
            f'y2="5" stroke-width="2" {line}/><path d="{_SHAPES[shape]}" fill="{colour}"/></svg>'
            f"{number + 1}. {escape(name)}</li>"
        )

    items = (item(number, arm.name) for number, arm in enumerate(study.arms))
    return f'<ul class="legend">{"".join(items)}</ul>'


def _charts(charts: Sequence[str]) -> str:
    figures = "".join(f"<figure>{chart}</figure>" for chart in charts)
    return f'<div class="charts">{figures}</div>' if charts else note("Nothing to draw yet.")


def _curves(study: StudyConfig, out: Path, runs: Sequence[Run], summary: Summary) -> list[str]:
    parts = []
    for curve in study.curves:
        parts += [
            f"<h2>{escape(curve.name[:1].upper() + curve.name[1:])}</h2>",
            _legend(study, over_each_other=True),
            _charts(curve_charts(study, curve, out)),
            note(f"The trained policies, no training in between; {curve.episodes} scenes at each "
                 f"point. Bands: 95 % interval over seeds and scenes{_alone(summary)}. "
                 f"{_repaired(curve)}{_trained_on(curve, runs)}"),
            controls_table(study, curve, out),
        ]  # fmt: skip
    return parts


def _repaired(curve: CurveConfig) -> str:
    """What is said of a curve whose policies see repaired pictures."""
    if curve.repair is None:
        return ""
    return f"Depth pictures as with policy.repair = {curve.repair}, without training by it. "


def _trained_on(curve: CurveConfig, runs: Sequence[Run]) -> str:
    """What the first arm's stages had for the settings that a curve changes."""
    keys = list(dict.fromkeys(key for point in curve.points for key in point.set))
    stages = []
    for run in runs:
        if (run.arm.name, run.seed) != (runs[0].arm.name, runs[0].seed) or not keys:
            continue
        settings = environments.resolved(run.job.env_id, run.job.env)
        values = (f"{key} = {json.dumps(settings.get(key, 'the default'))}" for key in keys)
        stages.append(f"stage {run.stage + 1} ({run.trainer}) {', '.join(values)}")
    return f"Trained with: {'; '.join(stages)}." if stages else ""


def _results(study: StudyConfig, out: Path, summary: Summary, runs: Sequence[Run]) -> str:
    measured = [row.scores for row in summary.arms.values() if row.scores.measured is not None]
    first = measured[0].headline if measured else None
    head = [
        ("arm", ""), ("seeds", ""), ("success", "of episodes, 95 % interval"),
        *([(first.label, f"{_unit(first)}95 % interval")] if first else []),
        ("reward", "per episode, mean ± sd over seeds"),
        ("ratio to baseline", "of rewards, 95 % interval"),
        ("ratio to oracle", "of success, 95 % interval"), ("attention", "MFLOPs a step"),
        ("fewer", "times, than the baseline"), ("total", "MFLOPs a step"),
        ("latency", "ms a step"), ("parameters", ""), ("files", "first seed's"),
    ]  # fmt: skip
    rows, ceiling = [], at_ceiling(summary)
    numbers = {arm.name: i + 1 for i, arm in enumerate(study.arms)}
    for row in [*summary.arms.values(), *summary.references.values()]:
        scripted = row.name in study.references
        name = f"{row.name} (scripted)" if scripted else f"{numbers[row.name]}. {row.name}"
        name += " (baseline)" if row.name == study.baseline else ""
        alike = "= " if row.name in ceiling else ""
        seeds = "-" if scripted else str(row.scores.seeds)
        cells = [escape(name), seeds, alike + success_cell(row.scores)]
        if first:
            cells.append(measured_cell(row.scores))
        rows.append([*cells, *_figures(row), _files(out, row.name, runs)])
    return table(head, rows) if rows else note("Nothing is measured yet.")


def _unit(outcome: Outcome) -> str:
    """What the figures of an outcome are, before what their intervals are."""
    words = f"share of {outcome.of}" if outcome.kind == "share" and outcome.of else outcome.unit
    return f"{words}, " if words else ""


def _figures(row: Row) -> list[str]:
    """Cells from the reward to the parameters."""
    sd = row.scores.reward_sd
    reward = f"{row.scores.reward:.3f}" + (f" <small>± {sd:.3f}</small>" if sd is not None else "")
    ratio = "-"
    if row.ratio is not None and row.ratio_interval is not None:
        low, high = row.ratio_interval
        ratio = between(f"{row.ratio:.3f}", f"{low:.3f}", f"{high:.3f}")
    share = "-"
    if row.of_oracle is not None and row.of_oracle_interval is not None:
        low, high = row.of_oracle_interval
        share = between(f"{row.of_oracle:.3f}", f"{low:.3f}", f"{high:.3f}")
    if row.cost is None:
        return [reward, ratio, share, "-", "-", "-", "-", "-"]
    return [
        reward, ratio, share, millions(row.cost["attention"]),
        "-" if row.fewer is None else f"{row.fewer:.2f} ×", millions(row.cost["total"]),
        f"{row.cost['latency_ms']:.3f}", f"{row.cost['parameters']:,}",
    ]  # fmt: skip


def _files(out: Path, name: str, runs: Sequence[Run]) -> str:
    directories = [run.directory for run in runs if run.arm.name == name]
    links = []
    for kind, product in (("video", Film), ("policy", Share)):
        found = [path for path in map(product.path_of, directories) if path.is_file()]
        if found:
            links.append(f'<a href="{escape(found[0].relative_to(out).as_posix())}">{kind}</a>')
    return ", ".join(links) or "-"


def _results_note(study: StudyConfig, summary: Summary) -> str:
    last = study.evaluation_seed + study.episodes - 1
    return note(
        f"{study.episodes} scenes (seeds {study.evaluation_seed} to {last}), the same for all, and "
        f"none of them used in training. Baseline: {study.baseline}. Intervals: over seeds and "
        f"scenes as crossed random effects, Student's t{_alone(summary)}; ratios on "
        "paired scenes. Latency: median of one policy step, all arms timed in turn."
    )


def _alone(summary: Summary) -> str:
    """A remark where an arm has one seed as yet."""
    one = any(row.scores.seeds == 1 for row in summary.arms.values())
    return " (one seed: over scenes alone)" if one else ""


def _origin(study: StudyConfig, summary: Summary, command: str, runs: Sequence[Run]) -> str:
    facts: dict[str, Any] = summary.provenance
    versions = ", ".join(f"{k} {v}" for k, v in facts.get("versions", {}).items() if v)
    machine = facts.get("hardware", {})
    devices = {study.device, *(getattr(run.job, "device", "cpu") for run in runs)}
    code = "; ".join(commits(runs)) or "no commit yet"
    again = " Where the versions and the machine are the same, so are all figures but the times."
    lines = [
        f"<pre>{escape(command)}</pre>",
        "<p>With --out and the study's directory it goes on with what is there. Where this page "
        "lies beside tables alone, --unpack with their directory begins a new --out with "
        "them.</p>",
        f"<p>Training seeds {escape(', '.join(map(str, study.seeds)))}."
        f"{again if devices == {'cpu'} else ''}</p>",
        f"<p>The runs were made at {escape(code)}.</p>",
        f"<p>Latencies were measured with Python {escape(str(facts.get('python', '')))}, "
        f"{escape(versions)}, on {escape(str(machine.get('cpu', 'an unknown machine')))}, "
        f"{escape(str(machine.get('cores', '?')))} cores, device {escape(study.device)}.</p>",
    ]
    return "\n".join(lines if facts else lines[:-1])
