"""Outcomes of episodes, as the task's description defines them: metrics and text.

An environment without a description has no outcomes: reward alone, and success where `info` has it.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from envs import Outcome, Task
from training.collect.episode import Episode


def outcomes_of(task: Task | None) -> tuple[Outcome, ...]:
    """The outcomes of a task, events last; empty without a description."""
    outcomes = () if task is None else task.outcomes
    return tuple(sorted(outcomes, key=lambda outcome: outcome.kind == "event"))


def mean_of(episodes: Sequence[Episode], name: str) -> float:
    """Mean of an outcome; NaN if an episode lacks it."""
    return float(np.mean([episode.outcomes.get(name, math.nan) for episode in episodes]))


def mean_success(episodes: Sequence[Episode]) -> float:
    """Share of the episodes that succeeded; NaN for environments that do not report success."""
    if any(episode.success is None for episode in episodes):
        return math.nan
    return float(np.mean([bool(episode.success) for episode in episodes]))


def center_columns(task: Task | None) -> dict[str, str]:
    """Columns of metrics.csv with the outcomes of a search's centre, events excepted."""
    return {f"center_{one.name}": one.name for one in outcomes_of(task) if one.kind != "event"}


def mean_columns(task: Task | None) -> dict[str, str]:
    """Columns with the outcomes of many episodes, events first."""
    outcomes = sorted(outcomes_of(task), key=lambda outcome: outcome.kind != "event")
    return {one.mean_name: one.name for one in outcomes}


def mean_values(columns: Mapping[str, str], episodes: Sequence[Episode]) -> dict[str, float]:
    """The values of such columns."""
    return {column: mean_of(episodes, name) for column, name in columns.items()}


def episode_columns(task: Task | None) -> tuple[str, ...]:
    """First columns of metrics.csv for an algorithm that evaluates a centre and perturbations of
    it.
    """
    return (
        "iteration", "env_steps", "episodes", "reward_mean", "reward_max", "center_reward",
        *center_columns(task), "center_success", "success_rate", *mean_columns(task),
    )  # fmt: skip


def episode_values(
    task: Task | None, center: Sequence[Episode], others: Sequence[Episode]
) -> dict[str, float]:
    """Values of the columns from `center_reward` on."""
    return {
        "center_reward": float(np.mean([episode.reward for episode in center])),
        **mean_values(center_columns(task), center),
        "center_success": mean_success(center),
        "success_rate": mean_success(others),
        **mean_values(mean_columns(task), others),
    }


def described(episode: Episode, task: Task | None) -> str:
    """The outcome of an episode in one line."""
    words = [
        one.shown(episode.outcomes[one.name])
        for one in outcomes_of(task)
        if one.name in episode.outcomes
    ]
    if not words and episode.success is not None:
        words = ["succeeded" if episode.success else "did not succeed"]
        if episode.succeeded_once and not episode.success:
            words = ["succeeded for a while, not at the end"]
    text = ", ".join(filter(None, words))
    after = f"{text} after {episode.steps} steps" if text else f"{episode.steps} steps"
    return f"seed {episode.seed}: {after}, reward {episode.reward:.3f}"


def means_described(episodes: Sequence[Episode], task: Task | None) -> str:
    """The outcomes of several episodes in one line."""
    count, words = len(episodes), []
    for one in outcomes_of(task):
        mean = mean_of(episodes, one.name)
        if math.isnan(mean):
            continue
        happened = f"{round(mean * count)} of {count} {one.label}"
        words.append(happened if one.kind == "event" else one.shown(mean))
    if not math.isnan(mean_success(episodes)):
        words.append(f"{sum(bool(episode.success) for episode in episodes)} succeeded")
    reward = float(np.mean([episode.reward for episode in episodes]))
    return f"mean of {count}: {', '.join([*words, f'reward {reward:.3f}'])}"
