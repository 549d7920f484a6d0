"""What a study's runs and evaluations came to: figures from its files alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from envs import Outcome, find_task
from training.analysis.intervals import Interval, mean_interval, share_interval
from training.compare.runs import TrainingJob, iterations_made
from training.io.config import UserError
from training.io.metrics import Curve, read_metrics
from training.io.run_log import PROVENANCE, Provenance
from training.io.state_files import Finite, State, check, read_json

__all__ = [
    "Scores",
    "Spread",
    "commits",
    "finished_runs",
    "pareto_front",
    "read_scores",
    "training_spread",
]


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
    """What a policy does that has success."""
    measured: np.ndarray | None = None
    """(seeds, scenes), that outcome; None where there is none, or not of every episode."""

    @property
    def seeds(self) -> int:
        """How many policies."""
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
        """(seeds, scenes): what the task is judged by first."""
        return self.successes if self.measured is None else self.measured

    @property
    def are_shares(self) -> bool:
        """Whether `outcomes` lie between 0 and 1."""
        return self.measured is None or (
            self.headline is not None and self.headline.kind == "share"
        )

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
    """What is read of every episode, and beside it whatever its `info` held."""

    reward: Annotated[float, Field(gt=-1e100, lt=1e100)]
    success: bool | Share = 0.0


@checked_dataclass(frozen=True, config=State)
class Records:
    """What is read of an evaluation's file."""

    records: tuple[Record, ...]
    env: str = ""
    seeds: tuple[Any, ...] | None = None


def read_scores(paths: Sequence[Path], episodes: int) -> Scores | None:
    """The first episodes of the evaluations that have as many, one a seed; None without any.

    UserError when a file is damaged.
    """
    tables: list[tuple[Record, ...]] = []
    measured: list[list[float | None]] = []
    headline, words = None, "succeeds"
    for path in paths:
        if not path.is_file():
            continue
        found = read_json(Records, path)
        wanted = len(found.records) if found.seeds is None else len(found.seeds)
        if not found.records or len(found.records) != wanted:
            raise UserError(
                f"{path} holds {len(found.records)} episodes of {wanted} scenes; it is damaged, "
                "and is made again once it is moved away"
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
    whole = all(None not in row for row in measured)

    def matrix(key: str) -> np.ndarray:
        return np.array([[float(getattr(record, key)) for record in rows] for rows in tables])

    return Scores(
        matrix("reward"),
        matrix("success"),
        headline,
        words,
        np.array(measured, float) if whole else None,
    )


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


def pareto_front(costs: Mapping[str, float], rewards: Mapping[str, float]) -> list[str]:
    """Names, cheapest first, that no other beats: none earns as much for less, or more for as
    much."""
    front: list[str] = []
    for name in sorted(costs, key=lambda name: (costs[name], -rewards[name])):
        if not front or rewards[name] > rewards[front[-1]]:
            front.append(name)
    return front


def finished_runs(runs: Sequence[TrainingJob], variant: str, stage: int) -> dict[int, Curve]:
    """The metrics of a variant's finished runs at a stage, by seed, where a row of them is left."""
    curves = {
        run.seed: read_metrics(run.directory)
        for run in runs
        if (run.variant.name, run.stage) == (variant, stage)
        and iterations_made(run.directory) == run.job.iterations
    }
    return {seed: curve for seed, curve in curves.items() if len(curve.columns["iteration"])}


@dataclass(frozen=True)
class Spread:
    """A column of the metrics over several seeds."""

    x: np.ndarray
    """Iterations, (points,)."""
    mean: np.ndarray
    low: np.ndarray
    """Mean less the standard deviation over the seeds."""
    high: np.ndarray


def training_spread(curves: Collection[Curve], column: str) -> Spread | None:
    """Mean and standard deviation over seeds, where all of them have a value; None without any."""
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
    return Spread(x, mean, mean - sd, mean + sd)


def commits(runs: Sequence[TrainingJob]) -> list[str]:
    """The distinct states of the source that runs began or went on with, in their order."""
    found: dict[str, None] = {}
    for path in (run.directory / PROVENANCE for run in runs):
        if not path.is_file():
            continue
        facts = read_json(Provenance, path)
        for git in (facts.git, *(part.git for part in facts.resumed)):
            changed = " with changes" if git and git.modified else ""
            found[f"commit {git.commit if git else 'unknown'}{changed}"] = None
    return list(found)
