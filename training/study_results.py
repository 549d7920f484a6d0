"""What a study's runs and evaluations came to: figures with intervals, from its files alone.

Scenes are the same for all arms and seeds, so an arm's rewards are a matrix: a row a training seed,
a column a scene. Intervals are percentiles of a bootstrap on two levels: rows are drawn with
replacement for each arm apart, and columns for all arms together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training import checkpoint
from training.evaluate import wilson_interval
from training.plots import Curve, read_metrics
from training.study_measures import read_json

__all__ = [
    "Scores",
    "Spread",
    "mean_interval",
    "pareto_front",
    "ratio_interval",
    "read_scores",
    "read_training",
    "training_spread",
]

DRAWS = 10_000
Interval = tuple[float, float]


@dataclass(frozen=True)
class Scores:
    """Episodes of the policies of one arm, or of a scripted one: a row a training seed."""

    rewards: np.ndarray
    """(seeds, scenes), undiscounted sums."""
    in_bowls: np.ndarray | None
    """(seeds, scenes), fraction of the balls; None for tasks without."""
    successes: int
    """Successful episodes of all."""

    @property
    def seeds(self) -> int:
        """How many policies."""
        return len(self.rewards)

    @property
    def success(self) -> float:
        """Share of all episodes."""
        return self.successes / self.rewards.size

    @property
    def success_interval(self) -> Interval:
        """Wilson's 95% interval of that share, episodes of all seeds pooled."""
        return wilson_interval(self.successes, self.rewards.size)

    @property
    def reward(self) -> float:
        """Mean over the seeds of each seed's mean."""
        return float(self.rewards.mean(1).mean())

    @property
    def reward_sd(self) -> float | None:
        """Standard deviation over the seeds of each seed's mean; None of a single seed."""
        return float(self.rewards.mean(1).std(ddof=1)) if self.seeds > 1 else None


def read_scores(paths: Sequence[Path]) -> Scores | None:
    """The evaluations that are there, one a seed; None without any."""
    entries = [read_json(path) for path in paths if path.is_file()]
    if not entries:
        return None
    records = [entry["records"] for entry in entries]
    swept = all("in_bowls" in record for rows in records for record in rows)
    return Scores(
        rewards=np.array([[record["reward"] for record in rows] for rows in records]),
        in_bowls=np.array([[r["in_bowls"] for r in rows] for rows in records]) if swept else None,
        successes=sum(round(e["success_rate"] * e["episodes"]) for e in entries),
    )


def _counts(generator: np.random.Generator, draws: int, size: int) -> np.ndarray:
    """How often each of `size` things comes up in as many draws with replacement: (draws, size)."""
    return generator.multinomial(size, np.full(size, 1 / size), size=draws)


def _means(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Means (draws,) of `values` (seeds, scenes), rows and columns repeated as counted."""
    return ((rows @ values) * columns).sum(1) / values.size


def _percentiles(values: np.ndarray) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def mean_interval(
    values: np.ndarray, generator: np.random.Generator, draws: int = DRAWS
) -> Interval:
    """95% bootstrap interval of the mean of `values` (seeds, scenes)."""
    rows, columns = (_counts(generator, draws, size) for size in values.shape)
    return _percentiles(_means(values, rows, columns))


def ratio_interval(
    ours: np.ndarray, theirs: np.ndarray, generator: np.random.Generator, draws: int = DRAWS
) -> Interval | None:
    """95% bootstrap interval of mean(ours) / mean(theirs), (seeds, scenes) each, the same scenes.

    None where `theirs` is not clearly positive: a ratio to nothing says nothing.
    """
    assert ours.shape[1] == theirs.shape[1], f"{ours.shape} and {theirs.shape}: other scenes"
    columns = _counts(generator, draws, ours.shape[1])
    top = _means(ours, _counts(generator, draws, len(ours)), columns)
    bottom = _means(theirs, _counts(generator, draws, len(theirs)), columns)
    return _percentiles(top / bottom) if (bottom > 0).all() else None


def pareto_front(costs: Mapping[str, float], rewards: Mapping[str, float]) -> list[str]:
    """Names, cheapest first, that no other beats: none earns as much for less, or more for as
    much."""
    front: list[str] = []
    for name in sorted(costs, key=lambda name: (costs[name], -rewards[name])):
        if not front or rewards[name] > rewards[front[-1]]:
            front.append(name)
    return front


def read_training(run: Path, iterations: int) -> Curve | None:
    """A finished run's metrics; None of another."""
    saved = checkpoint.in_run(run)
    if not saved or int(saved[-1].stem) != iterations:
        return None
    return read_metrics(run)


@dataclass(frozen=True)
class Spread:
    """A column of the metrics over several seeds."""

    x: np.ndarray
    """Iterations, (points,)."""
    mean: np.ndarray
    low: np.ndarray
    """Mean less the standard deviation over the seeds."""
    high: np.ndarray


def training_spread(curves: Sequence[Curve], column: str) -> Spread | None:
    """Mean and standard deviation over seeds, where all of them have a value; None without any."""
    found = [curve.columns[column] for curve in curves if column in curve.columns]
    length = min(map(len, found), default=0)
    values = np.array([one[:length] for one in found])
    known = np.isfinite(values).all(0) if length else np.zeros(0, bool)
    if not known.any():
        return None
    values, x = values[:, known], curves[0].columns["iteration"][:length][known]
    mean = values.mean(0)
    sd = values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return Spread(x, mean, mean - sd, mean + sd)


def budget_of(curve: Curve) -> dict[str, Any]:
    """What a run took: the last row's iteration, episodes, steps, frames and wall time."""
    names = ("iteration", "episodes", "env_steps", "decisions", "frames", "wall_s")
    return {name: float(curve.columns[name][-1]) for name in names if name in curve.columns}
