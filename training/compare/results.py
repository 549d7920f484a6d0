"""The results of a study: its episodes, costs and training curves, read from its files alone.

`read_results` gives one table, with a row for each variant and each scripted policy, from which
every figure, interval and sentence of the page follows.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from envs import Outcome, find_task
from training.analysis.intervals import Interval, mean_interval, ratio_interval, share_interval
from training.compare.config import CurveConfig, PointConfig, StudyConfig, slug
from training.compare.evaluations import BLIND, evaluation_file
from training.compare.model_files import Measured
from training.compare.runs import TrainingJob, iterations_made
from training.io.config import UserError
from training.io.metrics import Curve, read_metrics
from training.io.run_log import PROVENANCE, Provenance
from training.io.state_files import Finite, State, check, read_json

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Scores:
    """Episodes of the policies of one variant, or of a scripted one: a row a training seed."""

    rewards: np.ndarray
    """(seeds, scenes), undiscounted sums."""
    successes: np.ndarray
    """(seeds, scenes), 1 where the episode succeeded, 0 elsewhere."""
    headline: Outcome | None = None
    """The outcome that the task is judged by first; None where that is success."""
    success_words: str = "succeeds"
    """The verb for success of this task."""
    measured: np.ndarray | None = None
    """(seeds, scenes), that outcome; None where there is none, or not of every episode."""

    @property
    def seeds(self) -> int:
        """Number of policies."""
        return len(self.rewards)

    @property
    def success(self) -> float:
        """Share of all episodes."""
        return float(self.successes.mean())

    @property
    def success_interval(self) -> Interval:
        """95% interval of that share."""
        return share_interval(self.successes)

    @property
    def outcomes(self) -> np.ndarray:
        """(seeds, scenes): the task's first outcome, or success."""
        return self.successes if self.measured is None else self.measured

    @property
    def are_shares(self) -> bool:
        """Whether `outcomes` lie between 0 and 1."""
        return self.measured is None or getattr(self.headline, "kind", "") == "share"

    @property
    def mean_measured(self) -> tuple[float, Interval] | None:
        """Mean of `measured`, and its 95% interval, a share's in [0, 1]; None without."""
        if self.measured is None:
            return None
        low, high = mean_interval(self.measured)
        if self.are_shares:
            low, high = max(low, 0.0), min(high, 1.0)
        return float(self.measured.mean()), (low, high)

    @property
    def reward(self) -> float:
        """Mean over the seeds of each seed's mean."""
        return float(self.rewards.mean(1).mean())

    @property
    def reward_sd(self) -> float | None:
        """Standard deviation over the seeds of each seed's mean; None of a single seed."""
        return float(self.rewards.mean(1).std(ddof=1)) if self.seeds > 1 else None


@checked_dataclass(frozen=True, config=ConfigDict(extra="allow", allow_inf_nan=False))
class Record:
    """The keys that are read of every episode; other keys are those of its `info`."""

    reward: Annotated[float, Field(gt=-1e100, lt=1e100)]
    success: bool | Share = 0.0


@checked_dataclass(frozen=True, config=State)
class Records:
    """The keys that are read of an evaluation's file."""

    records: tuple[Record, ...]
    env: str = ""
    seeds: tuple[Any, ...] | None = None


def read_scores(paths: Sequence[Path], episodes: int) -> Scores | None:
    """The first episodes of the evaluations that have enough, one evaluation per seed; None without
    any.

    UserError when a file is damaged.
    """
    tables: list[tuple[Record, ...]] = []
    measured: list[list[float | None]] = []
    headline, words = None, "succeeds"
    for path in filter(Path.is_file, paths):
        found = read_json(Records, path)
        wanted = len(found.records) if found.seeds is None else len(found.seeds)
        if not found.records or len(found.records) != wanted:
            raise UserError(
                f"{path} holds {len(found.records)} episodes of {wanted} scenes; it is "
                f"damaged; move it away, and it is made again"
            )
        if len(found.records) < episodes:  # more of them follow
            continue
        tables.append(found.records[:episodes])
        task = find_task(found.env)
        if task is not None:
            headline, words = task.headline_outcome, task.success
        measured.append(_measured(headline, tables[-1], path))
    if not tables:
        return None
    rewards, successes = (
        np.array([[float(getattr(record, key)) for record in rows] for rows in tables])
        for key in ("reward", "success")
    )
    whole = all(None not in row for row in measured)
    return Scores(rewards, successes, headline, words, np.array(measured, float) if whole else None)


def _measured(
    outcome: Outcome | None, records: tuple[Record, ...], path: Path
) -> list[float | None]:
    """The outcome of episodes, None where one does not have it. UserError for another type."""
    if outcome is None:
        return [None] * len(records)
    found = [vars(record).get(outcome.name) for record in records]
    figures = {f"{i}.{outcome.name}": value for i, value in enumerate(found) if value is not None}
    kind: Any = Share if outcome.kind == "share" else Finite
    check(dict[str, kind], figures, path, "records.")
    return found


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
    """The fields of `model_files.Cost`; None where not measured."""
    fewer: float | None = None
    """The baseline's attention FLOPs, as a multiple of its own; None for a control
    and where one of both has none."""


@dataclass(frozen=True)
class Results:
    """All that is known of a study; variants and references without an evaluation are left out."""

    study: StudyConfig
    out: Path
    runs: Sequence[TrainingJob] = ()
    """All training runs, seeds outermost."""
    variants: dict[str, Row] = field(default_factory=dict)
    references: dict[str, Row] = field(default_factory=dict)
    blind: dict[str, Row] = field(default_factory=dict)
    """Of variants, with the images of another episode."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Machine on which the costs were measured."""
    _read: dict[Any, Scores | None] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> list[str]:
        """All variants, those without results too."""
        return [variant.name for variant in self.study.arms]

    def front(self, kind: str) -> list[str]:
        """Variants on the Pareto front by a kind of FLOPs, controls aside, cheapest first."""
        rivals = {n: row for n, row in self.variants.items() if n not in self.study.controls}
        costs = {n: row.cost[kind] for n, row in rivals.items() if row.cost is not None}
        return pareto_front(costs, {n: row.scores.reward for n, row in rivals.items()})

    def scores(
        self, name: str, curve: CurveConfig | None = None, point: PointConfig | None = None
    ) -> Scores | None:
        """Episodes of a variant or reference, on the task or at a point of a curve."""
        files = [f"{slug(name)}-s{seed}" for seed in self.study.seeds]
        return self.of_policies([name] if name in self.study.references else files, curve, point)

    def of_policies(
        self, files: Sequence[str], curve: CurveConfig | None = None,
        point: PointConfig | None = None,
    ) -> Scores | None:  # fmt: skip
        """Episodes of policies by the names of their files, one a seed; None without any.

        A point that changes nothing has the first episodes on the task.
        """
        episodes = self.study.episodes if curve is None else curve.episodes
        place: tuple[Any, ...] = ()
        if curve is not None and point is not None and not curve.is_of_the_task(point):
            place = curve.name, point.x
        paths = tuple(evaluation_file(self.out, name, *place) for name in files)
        if (paths, episodes) not in self._read:
            self._read[paths, episodes] = read_scores(paths, episodes)
        return self._read[paths, episodes]

    def by_seed(self, variant: str) -> dict[int, Scores]:
        """A variant's episodes on the task, by seed."""
        found = {s: self.of_policies([f"{slug(variant)}-s{s}"]) for s in self.study.seeds}
        return {seed: scores for seed, scores in found.items() if scores is not None}

    def finished(self, variant: str, stage: int) -> dict[int, Curve]:
        """Metrics of a variant's finished runs at a stage, by seed, if they still have rows."""
        curves = {
            run.seed: read_metrics(run.directory)
            for run in self.runs
            if (run.variant.name, run.stage) == (variant, stage)
            and iterations_made(run.directory) == run.job.iterations
        }
        return {seed: curve for seed, curve in curves.items() if len(curve.columns["iteration"])}

    def commits(self) -> list[str]:
        """The distinct states of the source that runs started or resumed with, in their order."""
        found: dict[str, None] = {}
        for path in (run.directory / PROVENANCE for run in self.runs):
            if not path.is_file():
                continue
            facts = read_json(Provenance, path)
            for git in (facts.git, *(part.git for part in facts.resumed)):
                changed = " with changes" if git and git.modified else ""
                found[f"commit {git.commit if git else 'unknown'}{changed}"] = None
        return list(found)


def read_results(study: StudyConfig, out: Path, runs: Sequence[TrainingJob] = ()) -> Results:
    """Read the results in a study's directory. UserError when a file is damaged."""
    costs: dict[str, Any] = {}
    origin: dict[str, Any] = {}
    if (out / "costs.json").is_file():
        measured = dataclasses.asdict(read_json(Measured, out / "costs.json"))
        costs, origin = measured["costs"], measured["provenance"]
    results = Results(study, out, runs, provenance=origin)
    found = {name: results.scores(name) for name in (*results.names, *study.references)}
    scores = {name: one for name, one in found.items() if one is not None}
    for name, one in scores.items():
        if name in study.references:
            results.references[name] = Row(name, one, mean_interval(one.rewards))
        else:
            results.variants[name] = _row(study, name, scores, costs)
    for name in results.names if study.blind else ():
        seeds = [f"{slug(name)}-s{seed}-{BLIND}" for seed in study.seeds]
        if (blinded := results.of_policies(seeds)) is not None:
            label = f"{name} ({BLIND})"
            results.blind[name] = Row(label, blinded, mean_interval(blinded.rewards))
    return results


def _row(
    study: StudyConfig, name: str, scores: Mapping[str, Scores], costs: Mapping[str, Any]
) -> Row:
    """A variant beside the baseline and the oracle."""
    ours, baseline, oracle = scores[name], scores.get(study.baseline), scores.get("oracle")
    ratio, between, share, around = None, None, None, None
    if baseline is not None and name != study.baseline:
        between = ratio_interval(ours.rewards, baseline.rewards)
        ratio = ours.reward / baseline.reward if between else None
    if oracle is not None and oracle.success > 0:
        share = ours.success / oracle.success
        around = _share_of(ours, oracle)
    cost, reference = costs.get(name), costs.get(study.baseline)
    fewer = None
    compared = name != study.baseline and name not in study.controls
    if cost and reference and cost["attention"] and reference["attention"] and compared:
        fewer = reference["attention"] / cost["attention"]
    interval = mean_interval(ours.rewards)
    return Row(name, ours, interval, ratio, between, share, around, cost, fewer)


def _share_of(ours: Scores, oracle: Scores) -> Interval | None:
    """Interval of the ratio of success; from our episodes alone if all of them have the same
    result."""
    if ours.success in (0.0, 1.0):
        low, high = ours.success_interval
        return low / oracle.success, high / oracle.success
    between = ratio_interval(ours.successes, oracle.successes)
    return None if between is None else (max(between[0], 0.0), between[1])


def pareto_front(costs: Mapping[str, float], rewards: Mapping[str, float]) -> list[str]:
    """Names, cheapest first, that no other beats: none earns as much for less, or more for as
    much."""
    front: list[str] = []
    for name in sorted(costs, key=lambda name: (costs[name], -rewards[name])):
        if not front or rewards[name] > rewards[front[-1]]:
            front.append(name)
    return front


Spread = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Iterations, and a column's mean over seeds, less and plus its standard deviation, (points,)."""


def training_spread(curves: Collection[Curve], column: str) -> Spread | None:
    """A column of the metrics over seeds, where all of them have a value; None without any."""
    found = [curve.columns[column] for curve in curves if column in curve.columns]
    length = min(map(len, found), default=0)
    values = np.array([one[:length] for one in found])
    known = np.isfinite(values).all(0) if length else np.zeros(0, bool)
    if not known.any():
        return None
    values = values[:, known]
    x = next(iter(curves)).columns["iteration"][:length][known]
    mean = values.mean(0)
    sd = values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return x, mean, mean - sd, mean + sd
