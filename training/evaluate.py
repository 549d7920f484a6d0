"""Measure policies over many seeds: reward, success, the task's own outcomes, FLOPs and latency.

python -m training.evaluate runs/a runs/b --policy oracle --policy blind --out evaluations/first
python -m training.evaluate --policy oracle --policy random --env BimanualSweep-v0 --workers 2
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.commands import open_command

    raise SystemExit(open_command("training.evaluate"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from envs import Outcome, Task
from training import checkpoint, config, run_log
from training.commands import exit_status
from training.config import ArgumentParser, UserError
from training.episode import Episode, Policy, finite_numbers, run_episode
from training.evaluation_file import PARETO, RESULTS, claim, is_free, sha256_of, write_entries
from training.files import reason
from training.flops import measure
from training.outcomes import mean_success, outcomes_of
from training.players import Player, add_arguments, find_players, positive
from training.pool import Pool, WorkerDiedError, opened
from training.progress import watched

__all__ = ["evaluate", "main", "play", "record", "standard_error", "summarise", "wilson_interval"]

FOLDER = "evaluation"
"""Of a run directory: receives its evaluations, the second `evaluation-2` and so on."""


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a success probability; z = 1.96 covers 95%.

    Unlike the normal interval it stays inside [0, 1] and has a width at 0 and at 100 successes.
    """
    rate, extra = successes / trials, z * z / trials
    centre = rate + extra / 2
    half = z * math.sqrt(rate * (1 - rate) / trials + extra / (4 * trials))
    return (
        max(0.0, (centre - half) / (1 + extra)) if successes else 0.0,
        min(1.0, (centre + half) / (1 + extra)) if successes < trials else 1.0,
    )


@dataclass(frozen=True)
class _Task:
    player: Player
    seed: int

    def __str__(self) -> str:
        return f"the episode of {self.player.name} with seed {self.seed}"


class _Stage:
    """One open environment and policy at a time; in each worker process there is one."""

    def __init__(self) -> None:
        self.player: Player | None = None
        self.env: gymnasium.Env | None = None
        self.policy: Policy | None = None

    def run(self, task: _Task) -> Episode:
        """Run one episode; equal whatever ran here before."""
        player, seed = task.player, task.seed
        if player != self.player:
            self.close()
            torch.set_num_threads(1)
            self.env = player.make_env()
            self.policy = player.make_policy(self.env)
            self.player = player
        assert self.env is not None
        assert self.policy is not None
        self.policy = player.for_episode(self.policy, self.env, seed)
        with torch.no_grad():
            episode = run_episode(self.env, self.policy, seed)
        return dataclasses.replace(episode, info=finite_numbers(episode.info))

    def close(self) -> None:
        if self.env is not None:
            self.env.close()
        self.player = self.env = self.policy = None


@contextmanager
def _open_pool(workers: int) -> Iterator[Pool[_Task, Episode]]:
    try:
        with opened(_Stage, workers) as pool:
            yield pool
    except WorkerDiedError as error:
        raise UserError(
            f"the evaluation stopped: {error}; policies evaluated before it are in the output"
        ) from None


def summarise(player: Player, episodes: Sequence[Episode]) -> dict[str, Any]:
    """The entry of evaluation.json that follows from the episodes alone."""
    rewards = np.array([e.reward for e in episodes])
    steps = np.array([e.steps for e in episodes])
    count, rate = len(episodes), mean_success(episodes)
    several = count > 1
    entry: dict[str, Any] = {
        "name": player.name,
        "env": player.env_id,
        "env_settings": player.env_settings,
        **({} if player.repair is None else {"repair": player.repair}),
        "seeds": [e.seed for e in episodes],
        "episodes": count,
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std(ddof=1)) if several else 0.0,
        "reward_sem": standard_error(rewards),
        "reward_per_step_mean": float((rewards / steps).mean()),
        "success_rate": None if math.isnan(rate) else rate,
        "success_interval_95": (
            None if math.isnan(rate) else list(wilson_interval(round(rate * count), count))
        ),
        "steps_mean": float(steps.mean()),
    }
    for outcome in outcomes_of(player.task):
        values = np.array([e.outcomes.get(outcome.name, math.nan) for e in episodes])
        if not np.isfinite(values).all():
            continue
        entry[outcome.mean_name] = float(values.mean())
        if outcome.kind != "event":
            entry[f"{outcome.name}_sem"] = standard_error(values)
    return entry


def record(episode: Episode) -> dict[str, float]:
    """An episode's entry in `records`; a key of `info` that is ours too means ours."""
    return {
        **episode.info,
        "seed": episode.seed,
        "reward": episode.reward,
        "steps": episode.steps,
    }


def episode_of(entry: Mapping[str, float], task: Task | None) -> Episode:
    """The episode whose entry in `records` it is."""
    info = {key: value for key, value in entry.items() if key not in ("seed", "reward", "steps")}
    return Episode(
        seed=int(entry["seed"]),
        reward=entry["reward"],
        steps=int(entry["steps"]),
        success=bool(info["success"]) if "success" in info else None,
        outcomes={one.name: info[one.name] for one in outcomes_of(task) if one.name in info},
        info=info,
    )


def standard_error(values: np.ndarray) -> float | None:
    """Standard error of the mean; None of a single value."""
    if len(values) < 2:
        return None
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _add_costs(entry: dict[str, Any], player: Player, seed: int) -> None:
    """FLOPs, latency and parameters, measured here on an observation of the environment."""
    with player.make_env() as env:
        policy = player.make_policy(env)
        observation, _ = env.reset(seed=seed)
        policy.reset()
        cost = measure(policy, observation, player.device)
    scripted = player.checkpoint is None
    entry |= {
        "flops_per_step": None if scripted else cost.total,
        "flops_by_component": {} if scripted else cost.flops,
        "latency_ms_per_step": cost.latency_ms,
        **({} if cost.repair_ms is None else {"repair_ms_per_step": cost.repair_ms}),
        "parameters": cost.parameters,
    }


def _origin(player: Player) -> dict[str, Any]:
    origin: dict[str, Any] = {"provenance": run_log.provenance({"env": player.env_settings})}
    if player.checkpoint is not None:
        origin["checkpoint"] = str(player.checkpoint)
        origin["checkpoint_sha256"] = sha256_of(player)
    return origin


def play(player: Player, seeds: Sequence[int], workers: int = 1) -> Iterator[Episode]:
    """Yield an episode a seed, in their order. UserError when an action or reward is not finite or
    a worker dies."""
    with _open_pool(min(workers, len(seeds))) as pool:
        yield from _episodes(pool, player, seeds, progress=False)


def _episodes(
    pool: Pool[_Task, Episode], player: Player, seeds: Sequence[int], progress: bool
) -> Iterator[Episode]:
    try:
        with closing(pool.in_order([_Task(player, seed) for seed in seeds])) as results:
            yield from watched(results, player.name, len(seeds), "episode", progress)
    except FloatingPointError as error:
        raise UserError(f"{player.name}: {error}") from None


def evaluate(
    players: Sequence[Player], seeds: Sequence[int], workers: int = 1, progress: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield an entry of evaluation.json for each player, as soon as it is measured.

    The entries do not depend on `workers`, latency excepted. Raises UserError when an action is
    not finite or a worker dies.
    """
    with _open_pool(min(workers, len(seeds))) as pool:
        for player in players:
            episodes = list(_episodes(pool, player, seeds, progress))
            entry = summarise(player, episodes)
            _add_costs(entry, player, seeds[0])
            entry |= _origin(player)
            entry["records"] = [record(episode) for episode in episodes]
            yield entry


def _outcomes(players: Sequence[Player]) -> list[Outcome]:
    """What the policies' tasks are judged by, events excepted, by name: a column each."""
    found = [one for player in players for one in outcomes_of(player.task) if one.kind != "event"]
    return list({outcome.name: outcome for outcome in found}.values())


def _heading(outcomes: Sequence[Outcome]) -> str:
    columns = [f"{one.label} {one.unit}".rstrip() for one in outcomes]
    return (
        f"{'policy':<28} {'success':>8} {'95% interval':>15} {'reward':>16} "
        + "".join(f"{column:>15} " for column in columns)
        + f"{'FLOPs/step':>13} {'ms/step':>8} {'parameters':>10}"
    )


def _row(entry: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    success, interval = "-", "-"
    if entry["success_rate"] is not None:
        success, (low, high) = f"{entry['success_rate']:.1%}", entry["success_interval_95"]
        interval = f"{low:.1%} - {high:.1%}"
    flops = "-" if entry["flops_per_step"] is None else f"{entry['flops_per_step']:,}"
    means = [_mean(entry, one.mean_name, one.name, one.decimals) for one in outcomes]
    return (
        f"{entry['name']:<28} {success:>8} {interval:>15} "
        f"{_mean(entry, 'reward_mean', 'reward', 3):>16} "
        + "".join(f"{mean:>15} " for mean in means)
        + f"{flops:>13} {entry['latency_ms_per_step']:>8.3f} {entry['parameters']:>10,}"
    )


def _mean(entry: dict[str, Any], mean_name: str, name: str, decimals: int) -> str:
    """Mean and standard error of a figure, the mean alone of one episode, or "-"."""
    if mean_name not in entry:
        return "-"
    mean, error = f"{entry[mean_name]:.{decimals}f}", entry[f"{name}_sem"]
    return mean if error is None else f"{mean} +- {error:.{decimals}f}"


def _folder(runs: Sequence[str], players: Sequence[Player], seeds: Sequence[int]) -> Path | None:
    """Where results go that --out does not place: in the first run directory that is named, itself
    or by a checkpoint, a folder that holds no others; None without one that can be written."""
    first = next(filter(None, map(_run_directory, runs)), None)
    if first is None:
        return None
    if not os.access(first, os.W_OK):
        print(f"note: {first} cannot be written, so nothing is: give --out DIR", file=sys.stderr)
        return None
    names = (f"{FOLDER}-{number}" if number > 1 else FOLDER for number in itertools.count(1))
    return next(f for f in (first / name for name in names) if is_free(f, players, seeds))


def _run_directory(given: str) -> Path | None:
    path = Path(given)
    if (path / checkpoint.CHECKPOINTS).is_dir():
        return path
    return path.parents[1] if path.parent.name == checkpoint.CHECKPOINTS else None


def _note_differences(players: Sequence[Player]) -> None:
    """Say when policies do not face the same task."""
    settings = [player.env_settings for player in players]
    keys = sorted({key for one in settings for key in one})
    different = [k for k in keys if any(one.get(k) != settings[0].get(k) for one in settings)]
    if different and len({player.env_id for player in players}) == 1:
        print(
            f"note: the policies' environments differ in {', '.join(different)}, "
            "which comes with each policy; --set gives all of them the same value",
            file=sys.stderr,
        )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="training.evaluate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN_OR_CHECKPOINT",
        help="run directory (its latest checkpoint), checkpoint file, or a shipped policy's name",
    )
    add_arguments(parser, episodes=100)
    parser.add_argument("--workers", type=positive, default=1, help="processes (default 1)")
    parser.add_argument("--device", default="cpu", help="PyTorch device of the policies")
    parser.add_argument(
        "--out", metavar="DIR",
        help=f"write {RESULTS} and {PARETO} here (default: {FOLDER}, {FOLDER}-2, ... in the first "
        "run directory named; without one nothing is written)",
    )  # fmt: skip
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    if not arguments.runs and not arguments.policy:
        raise UserError("give at least one RUN_OR_CHECKPOINT, or --policy oracle|blind|random")
    players = find_players(
        arguments.runs, arguments.policy, arguments.env, arguments.set, arguments.device,
        arguments.repair, own=arguments.own, anyway=arguments.anyway,
    )  # fmt: skip
    _note_differences(players)
    for player in players:
        config.check_finite(player.env_settings, f"the environment of {player.name}")
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    out = _folder(arguments.runs, players, seeds) if arguments.out is None else Path(arguments.out)
    with claim(out, players, seeds) as (directory, kept):
        _evaluate_into(directory, kept, players, seeds, arguments.workers)
    return 0


def _evaluate_into(
    directory: Path | None,
    kept: list[dict[str, Any]],
    players: Sequence[Player],
    seeds: Sequence[int],
    workers: int,
) -> None:
    """Print each policy's row as soon as it is measured, and write what is there so far; `kept` is
    there already."""
    outcomes = _outcomes(players)
    print(_heading(outcomes))
    entries: list[dict[str, Any]] = []
    rest = players[len(kept) :]
    measured = evaluate(rest, seeds, workers, progress=sys.stderr.isatty()) if rest else ()
    for entry in itertools.chain(kept, measured):
        entries.append(entry)
        print(_row(entry, outcomes), flush=True)
        if directory and len(entries) > len(kept):
            try:
                write_entries(directory, entries)
            except OSError as error:
                why = reason(error)
                raise UserError(f"{directory / RESULTS} cannot be written: {why}") from None
    if directory:
        from training.plots import plot_pareto

        plot_pareto(entries, directory / PARETO)
        print(f"wrote {directory / RESULTS} and {directory / PARETO}")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its exit status, as of `exit_status`."""
    return exit_status(lambda: run(argv))
