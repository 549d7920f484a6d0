"""The units of a study in their order, and what a record says of each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from training.collect.environments import make_env, render_modes
from training.compare.config import CurveConfig, StudyConfig
from training.compare.evaluations import Conditions, Costs
from training.compare.record import Told
from training.compare.runs import Run, runs_of
from training.compare.schedule import Unit
from training.compare.shares import Film, Look, Share, has_gaze

__all__ = ["all_runs", "plan", "told"]


def all_runs(study: StudyConfig, path: Path, out: Path) -> list[list[Run]]:
    """The stages of every seed and arm, seeds outermost; UserError when a configuration is bad."""
    pairs = [(seed, arm) for seed in study.seeds for arm in study.arms]
    return [runs_of(study, path, out, arm, seed) for seed, arm in pairs]


def plan(study: StudyConfig, out: Path, runs: list[list[Run]]) -> list[Unit]:
    """All units in their order: the leading arms first, of each seed all of them, then curves."""
    first = [stages[-1] for stages in runs[: len(study.arms)]]
    base = next(run for run in first if run.arm.name == study.baseline)

    def evaluated(run: Run, curve: CurveConfig | None = None) -> Conditions:
        job, name = run.job, run.directory.name
        return Conditions(study, out, name, job.env_id, job.env, run.directory, curve)

    def scripted(curve: CurveConfig | None = None) -> list[Conditions]:
        job = base.job  # they walk with the baseline's robot
        names = study.references
        return [Conditions(study, out, n, job.env_id, job.env, None, curve) for n in names]

    films = study.videos and _can_be_filmed(base)
    units: list[Unit] = [Costs(study, out, tuple(first)), *scripted()]
    leading = study.arms[: study.leading_arms]
    for group in (leading, study.arms[len(leading) :]):
        of_group = [stages for stages in runs if stages[0].arm in group]
        last = [stages[-1] for stages in of_group]
        compared = study.headline if study.compare_stages else None
        earlier = [run for stages in of_group for run in stages[:-1] if run.arm.name == compared]
        lasting = [run for run in (*last, *earlier) if run.stop is None]
        for stages, run in zip(of_group, last, strict=True):
            units += [*stages, *([evaluated(run)] if run in lasting else [])]
            if run.stop is not None or run.has_no_policy():
                continue
            units += [Look(study, run)] if has_gaze(run) else []
            if run.seed == study.seeds[0]:
                units.append(Share(study, run))
                units += [Film(study, run)] if films else []
        units += [evaluated(run) for run in earlier if run in lasting]
        for curve in study.curves:
            units += [evaluated(run, curve) for run in lasting]
            units += scripted(curve) if group == leading else []
    return units


def _can_be_filmed(run: Run) -> bool:
    with closing(make_env(run.job.env_id, run.job.env)) as env:
        return "rgb_array" in render_modes(env)


def told(units: Sequence[Unit], runs: list[list[Run]]) -> Told:
    """The runs and evaluations of the study, and what a record's tables say of each."""
    of_run: dict[str, dict[str, object]] = {
        run.directory.name: {"arm": run.arm.name, "training_seed": run.seed, "stage": run.stage + 1}
        for stages in runs
        for run in stages
    }
    evaluations: dict[str, dict[str, object]] = {}
    for unit in units:
        if isinstance(unit, Conditions):
            of_policy = of_run.get(unit.who, {"arm": unit.who})
            for path, point in unit.points().items():
                where = {"curve": unit.curve.name, "x": point.x} if unit.curve and point else {}
                evaluations[path.stem] = of_policy | where
    return Told(of_run, evaluations)
