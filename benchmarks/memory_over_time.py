"""Cost of a decision, and size of the memory for it, over the time of a walk.

    python -m benchmarks.memory_over_time --out results [--seconds 60] [--growing 20]

The scripted expert walks once with a camera that looks ahead. Initialised policies with each
memory, after many decisions, decide on its observations. Every second of the walk: FLOPs of a
decision and numbers carried to the next (exact counts), and the median of the others' CPU time, one
thread. A memory without forgetting runs for `--growing` seconds only, because its time grows with
the square of the length."""

import dataclasses
import statistics
from functools import partial
from typing import Any

import torch

from envs.stepping_stones.config import DECISION_S
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from policies import build_for, compile_act
from policies.common.compiled import AFTER
from policies.place_memory.config import PlaceMemoryConfig
from training import bc
from training.algorithms.bc_config import BCConfig
from training.analysis.agents import scripted_policy
from training.analysis.arguments import positive
from training.analysis.step_cost import ATTENTION, count, thread_ms
from training.collect.environments import make_env
from training.collect.episode import run_episode
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.io.config import UserError

PRESET = "configs/stepping_stones_memory.yaml"
WINDOW = round(1 / DECISION_S)
"""Decisions between two points of a line."""
MEMORIES: dict[str, dict[str, Any]] = {
    "none": {"memory": "none"},
    "grid of 1 cm": {"memory": "grid"},
    "linear, F = 53": {"memory": "linear"},
    "exact over 1 s": {"memory": "exact", "exact_s": 1.0},
    "exact over all": {"memory": "exact", "exact_s": None},
}
"""Changes of the preset's policy."""
Observations = list[Any]


def walked(job: BCConfig, seconds: int, seed: int) -> tuple[Observations, dict[str, Any]]:
    """The expert's observations in a walk, and a policy with each memory, by name.

    UserError where its walk ends before.
    """
    seen: Observations = []
    with make_env(job.env_id, {**job.env, "episode_s": float(seconds)}) as env:
        policies = {}
        for name, changes in MEMORIES.items():
            assert isinstance(job.policy, PlaceMemoryConfig)
            settings = dataclasses.replace(job.policy, **changes)
            policies[name] = compile_act(build_for(settings, env).requires_grad_(False))
        expert = scripted_policy("oracle", env, seed)
        run_episode(env, expert, seed, on_step=lambda _, observation, *__: seen.append(observation))
    if len(seen) < seconds * WINDOW:
        raise UserError(
            f"--seed must be of a terrain that the expert walks for {seconds} s, got "
            f"{seed - VALIDATION_SEEDS_FROM}, where it falls after {len(seen) * DECISION_S:.1f} s"
        )
    return seen, policies


def measured(policy: Any, seen: Observations) -> dict[str, list[float]]:
    """Second by second: FLOPs of its last decision and of attention in it, numbers carried after
    it, and the median of the others' milliseconds."""
    for observation in seen[: AFTER + 2]:  # from then on it is compiled, as in use
        policy.act(observation)
    policy.reset()
    rows: Rows = []
    for start in range(0, len(seen) - WINDOW + 1, WINDOW):
        *timed, last = seen[start : start + WINDOW]
        with torch.no_grad():
            times_ms = [thread_ms(partial(policy.act, observation)) for observation in timed]
        counter = count(partial(policy.act, last))
        rows.append(
            {
                "second": len(rows) + 1,
                "flops": counter.total,
                "attention_flops": sum(counter.by_component[name] for name in ATTENTION),
                "carried": policy.carried,
                "ms": statistics.median(times_ms),
            }
        )
    return {key: figure.column(rows, key) for key in rows[0]}


def draw(results: dict[str, dict[str, list[float]]]) -> Any:
    """FLOPs, numbers carried and milliseconds of a decision by second, a line for each memory."""
    rows = [{"memory": name, **found} for name, found in results.items()]
    keys = ("flops", "carried", "ms")
    plot = figure.plot(rows, "second", keys, "memory", scales=("linear", "log"), marker="")
    plot.axes[1].set_yscale("symlog", linthresh=10)
    return plot


def measure(arguments: Arguments) -> dict[str, dict[str, list[float]]]:
    """Figures second by second, by memory. Raises UserError."""
    seconds = min(arguments.seconds, 3) if arguments.quick else arguments.seconds
    job = bc.load_config(PRESET, [])
    assert isinstance(job, BCConfig)
    seen, policies = walked(job, seconds, VALIDATION_SEEDS_FROM + arguments.seed)
    rows = {}
    for name, policy in policies.items():
        endless = MEMORIES[name].get("exact_s", 0.0) is None
        most = min(seconds, arguments.growing) if endless else seconds
        rows[name] = measured(policy, seen[: most * WINDOW])
    return rows


def show(results: dict[str, dict[str, list[float]]]) -> Lines:
    """The first, tenth and last second of each memory."""
    rows = []
    for name, found in results.items():
        most = len(found["second"])
        for i in sorted({0, min(10, most) - 1, most - 1}):
            counts = (f"{found[key][i]:,}" for key in ("flops", "attention_flops", "carried"))
            rows.append((name, i + 1, *counts, f"{found['ms'][i]:.2f}"))
    head = ("memory", "second", "FLOPs", "attention", "carried", "ms")
    yield from figure.lines(head, rows, 20, 14)


main = figure.command(
    measure, show, draw,
    figure.option("--seconds", type=positive, default=60, help="default %(default)s"),
    figure.option("--growing", type=positive, default=20, help="default %(default)s"),
)  # fmt: skip
