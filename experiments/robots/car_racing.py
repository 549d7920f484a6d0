"""The cost of fine patches on CarRacing-v3, and the iterations that the study's variants can train.

    python -m experiments.robots.car_racing [--minutes M] [--out DIR] [--seed S] [--quick]

First FLOPs and milliseconds of the preset's policy with AttentionAgent's patches of 7 x 7 pixels at
strides 4, 2 and 1, with exact and linear attention, on whole images: of the scores alone and of a
    step. Then the time of a step of the
environment and of each variant's policy, and the iterations that fit into the given minutes of one
core if every training episode has its full length. All are medians of CPU time of one thread, timed
in turn.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import configs
import policies
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from experiments.timing import in_turn, medians, spent_ms
from training.algorithms.es_config import ESConfig, load_config
from training.analysis.step_cost import count
from training.collect.environments import make_env
from training.compare.config import load_config as load_study
from training.compare.config import study_file
from training.compare.runs import load_jobs

PRESET = Path(str(configs.__path__[0])) / "car_racing.yaml"
STRIDES = (4, 2, 1)
MAPS = {
    "exact softmax": ["feature_map=softmax"],
    "FAVOR+ m = 256": ["feature_map=positive", "num_features=256"],
    "angular m = n = 8": ["feature_map=angular_hybrid", "num_features=8", "num_lambda_features=8"],
}
WHOLE = "policy.image_crop=[0,0,0,0]", "policy.image_px=null", "policy.patch=[7,7]"
"""AttentionAgent's patches of the whole image."""
STEPS_SEEN = 20  # of 80 ms: CarRacing zooms in during the first second


def image(config: ESConfig, seed: int) -> Any:
    """Images of a drive, (96, 96, 3) uint8."""
    with closing(make_env(config.env_id, config.env)) as env:
        seen, _ = env.reset(seed=seed)
        for _ in range(STEPS_SEEN):
            seen, *_ = env.step(np.array([0.0, 0.5]))
    return seen


def scores(seed: int, calls: int) -> Rows:
    """Costs of scores and of a step, one row per stride and kind of attention."""
    seen = image(load_config(PRESET, []), seed)
    rows: Rows = []
    for stride in STRIDES:
        words = [*WHOLE, f"policy.stride=[{stride},{stride}]"]
        steps = {name: _steps([*words, *own], seen) for name, own in MAPS.items()}
        flat = {(name, part): step for name, one in steps.items() for part, step in one.items()}
        times = medians(in_turn(flat, calls))
        for name, one in steps.items():
            costs = {f"{part}_flops": count(step).total for part, step in one.items()}
            spent = {f"{part}_ms": times[name, part] for part in one}
            tokens = ((96 - 7) // stride + 1) ** 2  # patches of 7 pixels in a side of 96
            rows.append({"stride": stride, "tokens": tokens, "attention": name, **costs, **spent})
    return rows


def _steps(words: list[str], seen: Any) -> dict[str, Callable[[], Any]]:
    """The scores of the preset's policy, its queries and keys given, and its whole step."""
    config = load_config(PRESET, words)
    with closing(make_env(config.env_id, config.env)) as env:
        policy: Any = policies.build_for(config.policy, env)
    policy.requires_grad_(False).reset()
    tokens = policy.attended_tokens({"observation": torch.as_tensor(seen)[None]})
    query, key = policy.selection.project(tokens)
    return {
        "scores": lambda: policy.selection.features.token_scores(query, key),
        "step": lambda: policy.act(seen),
    }


def variants(seed: int, steps: int, minutes: float) -> Rows:
    """CPU time of a step of each variant, all stepped in turn, and the iterations that fit into the
    minutes.
    """
    path = study_file("car_racing")
    study = load_study(path)
    jobs = {arm.name: load_jobs(study, path, arm, seed)[0] for arm in study.arms}
    acting: dict[str, list[float]] = {name: [] for name in jobs}
    stepping, resetting = list[float](), list[float]()
    rng = np.random.default_rng(seed)
    with ExitStack() as stack:
        opened: dict[str, Any] = {}
        for name, job in jobs.items():
            env = stack.enter_context(closing(make_env(job.env_id, job.env)))
            policy: Any = policies.build_for(job.policy, env)
            policy.requires_grad_(False).reset()
            opened[name] = env, policy
        for step in range(steps):
            action = np.array([rng.uniform(-0.1, 0.1), 0.2])
            for name, (env, policy) in opened.items():
                if step % 50 == 0:
                    resetting.append(spent_ms(partial(env.reset, seed=step)))
                start = time.process_time()
                seen = env.step(action)[0]
                stepping.append(1e3 * (time.process_time() - start))
                acting[name].append(spent_ms(partial(policy.act, seen)))
    step_ms, reset_ms = statistics.median(stepping), statistics.median(resetting)
    rows: Rows = []
    for name, job in jobs.items():
        act_ms = statistics.median(acting[name])
        longest = job.env["episode_frames"] / job.env["action_repeat"]
        episodes = job.popsize * job.terrains + job.center_terrains
        iteration_s = episodes * (longest * (act_ms + step_ms) + reset_ms) / 1e3
        row = {"arm": name, "policy_ms": act_ms, "environment_ms": step_ms, "reset_ms": reset_ms}
        row |= {"iteration_s_at_most": iteration_s, "iterations": int(60 * minutes / iteration_s)}
        rows.append({**row, "iterations_of_the_study": job.iterations})
    return rows


def _table(rows: Rows) -> Lines:
    yield " | ".join(rows[0])
    for row in rows:
        yield " | ".join(
            f"{v:,.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v
            for v in row.values()
        )


def draw(results: dict[str, Any]) -> Any:
    """Milliseconds of the scores against tokens."""
    return figure.plot(results["look"], "tokens", "scores_ms", "attention", scales=("log", "log"))


def measure(arguments: Arguments) -> dict[str, Any]:
    """Costs of attention, and iterations that fit into the minutes."""
    return {
        "look": scores(arguments.seed, 3 if arguments.quick else 100),
        "arms": variants(arguments.seed, 5 if arguments.quick else 200, arguments.minutes),
        "minutes": arguments.minutes,
    }


def show(results: dict[str, Any]) -> Lines:
    """Both tables."""
    yield from _table(results["look"])
    yield from _table(results["arms"])


main = figure.command(
    measure, show, draw,
    figure.option("--minutes", type=float, default=60, help="minutes of one core (default 60)"),
)  # fmt: skip
