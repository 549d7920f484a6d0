"""Our trainers beside Stable-Baselines3's PPO on six public tasks, in equal time of two cores.

    python -m experiments.robots.public_tasks --runs DIR [TASK ...] [--minutes 1]

Each run trains until its processes have used the CPU time that two cores have in so many minutes,
its start included, so that neither other work on the machine nor an idle core counts. It is then
interrupted as by Ctrl-C, which all three trainers answer with a checkpoint. Stable-Baselines3 is
trained by its zoo (`rl_zoo3`) with the settings tuned there. Policies then play fresh seeds,
deterministically except where they were trained with drawn actions; random actions are the floor.
What is in `--runs` is not run again; a task that is not asked for stays as the file in `--out` has
it. Needs the extras `rl`, `box2d` and `video`, `rl_zoo3`, `ale-py`, `minigrid`, `psutil` and
`gymnasium[mujoco]`.

Intervals are over training seeds and episodes (`training.analysis.intervals`), 95 % each.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments import figure
from experiments.figure import Arguments, Lines
from training.analysis.agents import find_agents
from training.analysis.arguments import EVALUATION_SEED
from training.analysis.evaluator import evaluate
from training.analysis.intervals import mean_interval
from training.collect import env_settings
from training.command.files import read_bytes, write_atomically, writing
from training.io import checkpoint
from training.io.config import UserError

TASKS: dict[str, dict[str, Any]] = yaml.safe_load(
    (resources.files("experiments.robots") / "public_tasks.yaml").read_text()
)
"""By name: title, the task's name in the zoo, and the settings of our trainers."""
TRAINERS = {"es": "our evolution strategies", "ppo": "our PPO", "sb3": "Stable-Baselines3's PPO"}
SEEDS, EPISODES = 3, 50
_UNSEEN = range(EVALUATION_SEED, EVALUATION_SEED + EPISODES)
_CORES = 2
_GRACE_S = 240
"""Seconds that an interrupted trainer may take to end."""


def train(words: Sequence[str], log: Path, minutes: float) -> float:
    """Run a trainer's command until its processes have used so many minutes of both cores,
    interrupt it, and return the CPU seconds that they used.

    Raises UserError if it ends by a fault.
    """
    import psutil

    used_s = 0.0
    with log.open("wb") as out:
        process = psutil.Popen(
            [sys.executable, *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_interruptible,
        )
        while process.poll() is None and used_s < 60 * minutes * _CORES:
            time.sleep(0.5)
            with contextlib.suppress(psutil.NoSuchProcess):
                used_s = max(used_s, _cpu_s([process, *process.children(recursive=True)]))
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            status = process.wait(_GRACE_S)
        except psutil.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise UserError(f"{words[1]} did not end when interrupted: see {log}") from None
    if status not in (0, 130):
        raise UserError(f"{words[1]} ended with status {status}: see {log}")
    return used_s


def _interruptible() -> None:
    """Let a process be interrupted where it begins in the background, which ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _cpu_s(processes: Sequence[Any]) -> float:
    """CPU seconds of processes, with those of their children that have ended."""
    return sum(sum(one.cpu_times()[:4]) for one in processes)


def ours(run: Path, task: Mapping[str, Any], trainer: str, seed: int, minutes: float) -> Any:
    """Train by one of our trainers; rewards on fresh seeds, and what the training took."""
    file = run / "task.yaml"
    settings = {**task["env"], **task[trainer], "trainer": trainer, "iterations": 10**6}
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    out = run / "run"
    words = ["-m", f"training.{trainer}", "--config", str(file), "--out", str(out)]
    spent_s = train([*words, "--set", f"seed={seed}"], run / "log.txt", minutes)
    named = env_settings.custom(task["env"].get("env", {}))
    drawn = settings.get("sample_actions", False)
    agents = find_agents([str(out)], [], None, [], own=named, sample_actions=drawn)
    (entry,) = evaluate(agents, _UNSEEN)
    progress: Any = checkpoint.load(checkpoint.in_run(out)[-1]).state["progress"]
    rewards = _of_games(task, entry["records"])
    return {"rewards": rewards, "env_steps": int(progress["env_steps"]), "cpu_s": spent_s}


def _of_games(task: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> list[float]:
    """Rewards of episodes; of the whole game where an episode is one of its lives."""
    return [round(task.get("lives", 1) * float(each["reward"]), 4) for each in episodes]


def zoo(run: Path, task: Mapping[str, Any], seed: int, minutes: float) -> Any:
    """Train by Stable-Baselines3's zoo; rewards of fresh episodes, and what the training took."""
    from rl_zoo3.utils import create_test_env, get_saved_hyperparams
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    words = ["-m", "rl_zoo3.train", "--algo", "ppo", "--env", task["zoo"], "--seed", str(seed)]
    words += ["-f", str(run), "--vec-env", task.get("vec_env", "dummy"), "--eval-freq", "-1"]
    words += ["--gym-packages", *task.get("packages", ())] if "packages" in task else []
    for package in task.get("packages", ()):
        import_module(package)  # registers the environment here, too
    spent_s = train([*words, *_zoo_settings(run, task)], run / "log.txt", minutes)
    name = task["zoo"].replace("/", "-")
    (model,) = (run / "ppo").glob(f"{name}_*/{name}.zip")
    settings, statistics = get_saved_hyperparams(str(model.parent / name), test_mode=True)
    env = create_test_env(
        task["zoo"], 1, statistics, EVALUATION_SEED + seed, None, False, settings, {}
    )
    policy = PPO.load(model)
    rewards: Any = evaluate_policy(policy, env, EPISODES, return_episode_rewards=True)[0]
    env.close()
    found = [round(float(reward), 4) for reward in rewards]
    return {"rewards": found, "env_steps": int(policy.num_timesteps), "cpu_s": spent_s}


def _zoo_settings(run: Path, task: Mapping[str, Any]) -> list[str]:
    """The option that names a file, where the zoo's settings are another task's, or changed."""
    if not {"zoo_settings", "zoo_changes"} & task.keys():
        return []
    import rl_zoo3

    known = yaml.safe_load((Path(rl_zoo3.__file__).parent / "hyperparams" / "ppo.yml").read_text())
    file = run / "zoo.yaml"
    settings = known[task.get("zoo_settings", task["zoo"])] | task.get("zoo_changes", {})
    file.write_text(yaml.safe_dump({task["zoo"]: settings}), encoding="utf-8")
    return ["--conf-file", str(file)]


def result(runs: Path, name: str, trainer: str, seed: int, minutes: float) -> Any:
    """One run's result, from its file if there is one."""
    run, task = runs / f"{name}-{trainer}-s{seed}", TASKS[name]
    file = run / "result.json"
    if not file.exists():
        shutil.rmtree(run, ignore_errors=True)  # a run that was stopped begins again
        run.mkdir(parents=True)
        is_zoo = trainer == "sb3"
        made = zoo(run, task, seed, minutes) if is_zoo else ours(run, task, trainer, seed, minutes)
        with writing(file):
            write_atomically(file, json.dumps({"seed": seed, **made}).encode())
        print(f"{name}, {TRAINERS[trainer]}, seed {seed}: {np.mean(made['rewards']):.2f}")
    return json.loads(read_bytes(file))


def floor(runs: Path, name: str) -> list[float]:
    """Rewards of random actions on the fresh seeds."""
    settings = TASKS[name]["env"]
    file = runs / f"{name}-random.json"
    if not file.exists():
        words = [f"{key}={json.dumps(value)}" for key, value in settings.get("env", {}).items()]
        agents = find_agents([], ["random"], settings["env_id"], words)
        (entry,) = evaluate(agents, _UNSEEN)
        with writing(file):
            found = _of_games(TASKS[name], entry["records"])
            write_atomically(file, json.dumps(found).encode())
    rewards: list[float] = json.loads(read_bytes(file))
    return rewards


def measure(arguments: Arguments) -> dict[str, Any]:
    """Results by task, those that are not asked for as the file in --out has them."""
    unknown = [name for name in arguments.tasks if name not in TASKS]
    if unknown:
        raise UserError(f"TASK must be of {', '.join(TASKS)}, got {unknown[0]!r}")
    runs, minutes = Path(arguments.runs), 0.25 if arguments.quick else arguments.minutes
    file = Path(arguments.out or "") / "public_tasks.json"
    found = json.loads(read_bytes(file))["results"] if arguments.out and file.exists() else {}
    seeds = range(arguments.seed, arguments.seed + (1 if arguments.quick else SEEDS))
    for name in arguments.tasks or TASKS:
        of_task = {t: [result(runs, name, t, s, minutes) for s in seeds] for t in TRAINERS}
        found[name] = {"minutes": minutes, "random": floor(runs, name), **of_task}
    return {name: found[name] for name in TASKS if name in found}


def show(results: dict[str, Any]) -> Lines:
    """The figures as a table of Markdown."""
    yield f"| task | random | {' | '.join(TRAINERS.values())} | environment steps |"
    yield "|---|---|---|---|---|---|"
    for name, of_task in results.items():
        cells = [f"{np.mean(of_task['random']):.4g}"]
        for trainer in TRAINERS:
            rewards = np.array([run["rewards"] for run in of_task[trainer]])
            low, high = mean_interval(rewards)
            cells.append(f"{rewards.mean():.4g} ({low:.4g} to {high:.4g})")
        steps = (np.mean([run["env_steps"] for run in of_task[t]]) for t in TRAINERS)
        cells.append(", ".join(f"{count:,.0f}" for count in steps))
        yield f"| {TASKS[name]['title']} | {' | '.join(cells)} |"


main = figure.command(
    measure, show, None,
    figure.option("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}"),
    figure.option("--runs", metavar="DIR", required=True, help="directory of the runs"),
    figure.option("--minutes", type=float, default=1.0, help="of two cores (default %(default)s)"),
)  # fmt: skip
