"""Proximal policy optimisation against evolution strategies, at equal environment steps.

    python -m experiments.robots.ppo_against_es

TASK is stones or car; default both. Both trainers train the same policy in the same environment,
three seeds each, for the same number of environment steps, then run on 100 fresh seeds. All runs
are stored in `--runs`; when restarted, the command resumes, even in the middle of a run. A task
that is not named stays in the table and the image, from the file in `--out`. Needs the extras `es`,
`rl` and, for the car, `box2d`.

Intervals are over training seeds and episodes (`training.analysis.intervals`), 95 % each.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from training import es, ppo
from training.algorithms import es_config
from training.analysis.agents import find_agents
from training.analysis.arguments import EVALUATION_SEED
from training.analysis.evaluator import evaluate
from training.analysis.intervals import Interval, mean_interval, share_interval
from training.command.files import CONFIG, read_bytes, write_atomically, writing
from training.io import checkpoint
from training.io.config import UserError, dump
from training.io.metrics import read_metrics
from training.io.overrides import assignment

TRAINERS: dict[str, Callable[[list[str]], int]] = {"es": es.main, "ppo": ppo.main}
NAMES = {"es": "evolution strategies", "ppo": "PPO"}
SEEDS, EPISODES = 3, 100
_PORTION = 10
"""Iterations trained in one go: between them the cost is written down."""
_LONGER = 4
"""Factor by which later iterations may take more steps than earlier ones: episodes get longer."""
_STRETCHES = 15
"""Points of a drawn curve: means over as long stretches of the training."""


@dataclass(frozen=True)
class Task:
    """The settings common to both trainers."""

    title: str
    presets: dict[str, str]
    """File in `configs`, by trainer."""
    env_steps: int
    outcome: str
    """Measure of an episode beside the reward."""
    both: tuple[str, ...] = ()
    """Changes of the presets."""
    quick: tuple[str, ...] = ()


_STONES = {"es": "stepping_stones.yaml", "ppo": "stepping_stones_ppo.yaml"}
_CAR = {"es": "car_racing.yaml", "ppo": "car_racing_ppo.yaml"}
_PATCH = ("policy.patch=[2,2]",)
TASKS = {
    "stones": Task("stepping stones", _STONES, 60_000, "distance_m", _PATCH, ("episode_s=1",)),
    "car": Task("CarRacing", _CAR, 30_000, "tiles", (), ("env.episode_frames=40",)),
}
QUICK = {
    "es": ("popsize=4", "terrains=1", "center_terrains=1"),
    "ppo": ("steps=2", "episodes=1", "center_episodes=1", "n_epochs=1", "batch_size=16"),
}


def preset(task: Task, trainer: str) -> Path:
    """The configuration file of a trainer's runs."""
    return Path(str(resources.files("configs") / task.presets[trainer]))


def overrides(task: Task, trainer: str, seed: int, quick: bool) -> list[str]:
    """The overrides of a run's preset: environment and policy are those of `training.es`."""
    shorter = task.quick if quick else ()
    job = dump(es_config.load_config(preset(task, "es"), [*task.both, *shorter]))
    job["policy"] |= {"init_seed": seed, "feature_seed": seed}
    same = ("env_id", "env", "policy", "episode_s", "feature_map", "num_features",
            "num_lambda_features")  # fmt: skip
    changes = [assignment(key, job[key]) for key in same if job[key] is not None]
    return [*changes, "workers=1", f"seed={seed}", *(QUICK[trainer] if quick else ())]


def steps_made(run: Path) -> tuple[int, int]:
    """Iterations and environment steps of a run's newest checkpoint."""
    saved = checkpoint.in_run(run)
    if not saved:
        return 0, 0
    progress: Any = checkpoint.load(saved[-1]).state["progress"]
    return int(progress["iteration"]), int(progress["env_steps"])


def train(run: Path, task: Task, trainer: str, changes: Sequence[str], env_steps: int) -> None:
    """Train in `run`, or resume, until the environment has made this number of steps. SystemExit
    when the trainer ends early.
    """
    while (made := steps_made(run))[1] < env_steps:
        words = ["--resume", str(run), "--set"]
        if not (run / CONFIG).exists():
            words = ["--config", str(preset(task, trainer)), "--out", str(run), "--set", *changes]
        fit = 1
        if made[0]:
            longest = np.diff(read_metrics(run).columns["env_steps"], prepend=0.0).max()
            fit = int(np.clip((env_steps - made[1]) // (_LONGER * longest), 1, _PORTION))
        began = time.process_time()
        status = TRAINERS[trainer]([*words, f"iterations={made[0] + fit}"])
        _add_cost(run, "training_cpu_s", began)
        if status != 0:
            raise SystemExit(status)


def _write(file: Path, facts: Any) -> None:
    with writing(file):
        write_atomically(file, json.dumps(facts).encode())


def _add_cost(run: Path, name: str, began: float) -> None:
    """Add this process's seconds since `began` to the cost of a run."""
    file = run / "cost.json"
    known = json.loads(read_bytes(file)) if file.exists() else {}
    known[name] = round(known.get(name, 0.0) + time.process_time() - began, 1)
    _write(file, known)


def drive(run: Path, outcome: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Rewards, and the outcome, of a run's policy on fresh seeds; kept in the run's directory."""
    file = run / f"on_{len(seeds)}_seeds.json"
    if not file.exists():
        began = time.process_time()
        (entry,) = evaluate(find_agents([str(run)], [], None, []), seeds)
        keys = ["reward", outcome] + ["success"] * (entry["success_rate"] is not None)
        found = {key: [round(float(e[key]), 6) for e in entry["records"]] for key in keys}
        _add_cost(run, "evaluation_cpu_s", began)
        _write(file, found)
    known: dict[str, list[float]] = json.loads(read_bytes(file))
    return known


def trained(runs: Path, key: str, seeds: Sequence[int], quick: bool) -> dict[str, Any]:
    """The results of both trainers on a task, by trainer; seed by seed, so that each pair is done
    before the next."""
    task, env_steps = TASKS[key], 10 if quick else TASKS[key].env_steps
    drives = range(EVALUATION_SEED, EVALUATION_SEED + (2 if quick else EPISODES))
    results: dict[str, Any] = {trainer: [] for trainer in TRAINERS}
    for seed in seeds:
        for trainer in TRAINERS:
            run = runs / f"{key}-{trainer}-s{seed}"
            train(run, task, trainer, overrides(task, trainer, seed, quick), env_steps)
            columns = read_metrics(run).columns
            results[trainer].append(
                {
                    "seed": seed,
                    "iterations": steps_made(run)[0],
                    "env_steps": columns["env_steps"].astype(int).tolist(),
                    "center_reward": columns["center_reward"].round(4).tolist(),
                    "fresh": drive(run, task.outcome, drives),
                    "cost": json.loads(read_bytes(run / "cost.json")),
                }
            )
    return results


def fresh(of_trainer: Rows, key: str) -> np.ndarray:
    """Figures on fresh seeds, (training seeds, episodes)."""
    return np.array([one["fresh"][key] for one in of_trainer])


def show(results: dict[str, dict[str, Rows]]) -> Lines:
    """The figures as a table of Markdown."""
    yield "| | environment steps | reward | success | | core-minutes a run |"
    yield "|---|---|---|---|---|---|"
    for key, of_task in results.items():
        task = TASKS[key]
        for trainer, runs in of_task.items():
            steps = np.mean([run["env_steps"][-1] for run in runs])
            cells = [f"{steps:,.0f}", _cell(fresh(runs, "reward"), mean_interval)]
            whether = "success" in runs[0]["fresh"]
            cells += [_cell(fresh(runs, "success"), share_interval, True) if whether else "-"]
            cells += [f"{task.outcome} {_cell(fresh(runs, task.outcome), mean_interval)}"]
            cost_s = np.mean([run["cost"]["training_cpu_s"] for run in runs])
            cells += [f"{cost_s / 60:.1f}"]
            yield f"| {task.title}, {NAMES[trainer]} | {' | '.join(cells)} |"
        if len(of_task) == len(TRAINERS):
            more = fresh(of_task["ppo"], "reward") - fresh(of_task["es"], "reward")
            cell = _cell(more, mean_interval)
            yield f"| {task.title}, PPO less evolution strategies | | {cell} | | | |"


def _cell(values: np.ndarray, interval: Callable[..., Interval], percent: bool = False) -> str:
    low, high = interval(values)
    if percent:
        return f"{100 * values.mean():.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    digits = 0 if np.abs(values).max() >= 100 else 2
    return f"{values.mean():.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def draw(results: dict[str, dict[str, Any]]) -> Any:
    """One row per task: training curves and the rewards on fresh seeds."""
    plot, axes = figure.new_figure(2, len(results), size=(4.6, 2.9))
    for (curve, bars), (key, of_task) in zip(axes, results.items(), strict=True):
        for place, (trainer, runs) in enumerate(of_task.items()):
            color, mean = f"C{place}", fresh(runs, "reward").mean()
            for i, run in enumerate(runs):
                x, y = smooth(run["env_steps"], run["center_reward"])
                curve.plot(x, y, color=color, label=NAMES[trainer] if i == 0 else None)
                at = place + 0.12 * (i - (len(runs) - 1) / 2)
                each = np.array([run["fresh"]["reward"]])
                low, high = mean_interval(each)
                here = each.mean()
                bars.errorbar(at, here, [[here - low], [high - here]], fmt="o", color=color, ms=3)
            bars.hlines(mean, place - 0.3, place + 0.3, color=color)
        curve.set(xlabel="environment steps", ylabel="reward in training")
        curve.set_title(TASKS[key].title, fontsize="medium", loc="left")
        bars.set_xticks(range(len(of_task)), [NAMES[trainer] for trainer in of_task])
        bars.set(ylabel=f"reward, {len(runs[0]['fresh']['reward'])} fresh seeds")
        bars.set_xlim(-0.5, len(of_task) - 0.5)
    axes[0][0].legend(fontsize="x-small")
    return plot


def smooth(steps: Sequence[float], rewards: Sequence[float]) -> np.ndarray:
    """(2, intervals): means of a curve over intervals with the same number of steps."""
    x, y = np.array(steps, float), np.array(rewards, float)
    part = np.minimum((_STRETCHES * x / x[-1]).astype(int), _STRETCHES - 1)
    means = [(x[part == one].mean(), y[part == one].mean()) for one in np.unique(part)]
    return np.array(means).T


def measure(arguments: Arguments) -> dict[str, dict[str, Any]]:
    """Results by task; those that are not named come from the file in --out."""
    unknown = [key for key in arguments.tasks if key not in TASKS]
    if unknown:
        raise UserError(f"TASK must be of {', '.join(TASKS)}, got {unknown[0]!r}")
    seeds = range(arguments.seed, arguments.seed + (1 if arguments.quick else SEEDS))
    file = Path(arguments.out or "") / "ppo_against_es.json"
    found = json.loads(read_bytes(file))["results"] if arguments.out and file.exists() else {}
    for key in arguments.tasks or TASKS:
        found[key] = trained(Path(arguments.runs), key, seeds, arguments.quick)
    return {key: found[key] for key in TASKS if key in found}


main = figure.command(
    measure, show, draw,
    figure.option("tasks", nargs="*", metavar="TASK", help=f"tasks, of {' and '.join(TASKS)}"),
    figure.option("--runs", metavar="DIR", required=True, help="directory of the runs"),
)  # fmt: skip
