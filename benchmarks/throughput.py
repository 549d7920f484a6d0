"""Simulated seconds a core-second of SteppingStones-v0, and where the time goes.

    python -m benchmarks.throughput [--episodes N] [--seed S] [--json FILE]

The oracle walks whole episodes, both cameras at 20 Hz and the controllers running; the time is the
process's CPU time inside the environment, first untouched, for the rate, then with a clock around
each part, for the table. The bound is bare physics: the same robot on the same stones, driven by
the torques of the same walk, with no controller, sensors or cameras.
"""

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

import gymnasium
import numpy as np

import envs
from envs.cameras import DepthCameras
from envs.stepping_stones.env import DECISION_S, SteppingStonesEnv
from envs.stepping_stones.estimator import StateEstimator
from envs.stepping_stones.locomotion import Locomotion
from envs.stepping_stones.robot import Laikago
from envs.stepping_stones.sensors import Sensors
from envs.stepping_stones.stance_mpc import StanceMpc
from experiments import figure
from experiments.figure import Arguments, Lines
from experiments.timing import Parts, clocked, spent_ms
from training.analysis.arguments import EVALUATION_SEED, positive

PARTS: Parts = {
    "physics": ((Laikago, "advance"),),
    "stance MPC": ((StanceMpc, "solve"),),
    "state reads": ((Laikago, "read"),),
    "estimation": ((StateEstimator, "update"),),
    "cameras": ((DepthCameras, "render"),),
    "sensor noise": ((Sensors, "measure"), (Sensors, "depth")),
    "gait, swing, torques": ((Locomotion, "torques"), (Locomotion, "sense")),
    "the rest of step": ((SteppingStonesEnv, "step"),),
}  # fmt: skip


def walk(world: SteppingStonesEnv, seed: int) -> tuple[float, float]:
    """The oracle's episode: simulated seconds, and CPU seconds inside `step`."""
    world.reset(seed=seed)
    spent, steps, ended = 0.0, 0, False
    while not ended:
        action = world.expert_action()
        start = time.process_time()
        _, _, terminated, truncated, _ = world.step(action)
        spent += time.process_time() - start
        steps += 1
        ended = terminated or truncated
    return steps * DECISION_S, spent


def parts(world: SteppingStonesEnv, seeds: Sequence[int]) -> dict[str, float]:
    """CPU milliseconds a simulated second of each part."""
    with clocked(PARTS, "step") as clock:
        simulated = sum(walk(world, seed)[0] for seed in seeds)
    return {part: 1e3 * sum(call[part] for call in clock.calls) / simulated for part in PARTS}


def bare_physics(world: SteppingStonesEnv, seed: int) -> float:
    """CPU milliseconds a simulated second of the same walk by its recorded torques alone."""
    start: list[Any] = []
    torques: list[tuple[np.ndarray, int]] = []
    place, advance = Laikago.place, Laikago.advance

    def record_place(robot: Laikago, *args: Any) -> Any:
        start[:] = args
        return place(robot, *args)

    def record_advance(robot: Laikago, torques_n_m: np.ndarray, steps: int) -> None:
        torques.append((torques_n_m.copy(), steps))
        advance(robot, torques_n_m, steps)

    with mock.patch.multiple(Laikago, place=record_place, advance=record_advance):
        simulated, _ = walk(world, seed)
    robot = world._robot
    end = robot.read().position_m
    robot.place(*start)

    def repeat() -> None:
        for torques_n_m, steps in torques:
            robot.advance(torques_n_m, steps)

    spent = spent_ms(repeat)
    assert (robot.read().position_m == end).all()  # it was the same walk
    return spent / simulated


def measure(seeds: Sequence[int], **settings: Any) -> dict[str, Any]:
    """The figures; rates are medians over the episodes. The first walk is a warm-up."""
    with gymnasium.make(envs.STEPPING_STONES, **settings) as env:
        world = env.unwrapped
        assert isinstance(world, SteppingStonesEnv)
        walk(world, seeds[0])
        rates, shares, bares = [], [], []
        for seed in seeds:  # in turn: a machine that others use is slower now and then
            simulated, stepping = walk(world, seed)
            bares.append(bare_physics(world, seed))
            rates.append(simulated / stepping)
            shares.append(bares[-1] * simulated / (1e3 * stepping))
        first = range(seeds[0], seeds[0] + 50)
        resets = [spent_ms(partial(world.reset, seed=seed)) for seed in first]
        bare = statistics.median(bares)
        spent = parts(world, seeds)
    return {
        "simulated_s_per_core_s": statistics.median(rates),
        "simulated_s_per_core_s_by_episode": rates,
        "bare_physics_s_per_core_s": 1e3 / bare,
        "bare_physics_share": statistics.median(shares),
        "ms_per_simulated_s": spent,
        "bare_physics_ms_per_simulated_s": bare,
        "reset_ms_median": statistics.median(resets),
        "reset_ms_max": max(resets),
        "seeds": list(seeds),
    }


def report(figures: dict[str, Any]) -> Lines:
    """The figures as text."""
    rates = figures["simulated_s_per_core_s_by_episode"]
    spent = figures["ms_per_simulated_s"]
    total = sum(spent.values())
    yield (
        f"whole environment  {figures['simulated_s_per_core_s']:6.2f} simulated s a core-second "
        f"({min(rates):.2f} to {max(rates):.2f} over {len(rates)} episodes)"
    )
    yield f"bare physics       {figures['bare_physics_s_per_core_s']:6.2f}"
    yield f"of a step          {figures['bare_physics_share']:6.2f} is bare physics"
    yield (
        f"reset              {figures['reset_ms_median']:6.2f} ms "
        f"(at most {figures['reset_ms_max']:.2f})\n"
    )
    rows = [
        (part, f"{ms:.1f}", f"{ms / total:.1%}") for part, ms in (*spent.items(), ("all", total))
    ]
    rows.append(("bare physics", f"{figures['bare_physics_ms_per_simulated_s']:.1f}", ""))
    yield from figure.lines(("part of step", "ms a simulated s", "share"), rows, 24, 17, 8)


def run(arguments: Arguments) -> dict[str, Any]:
    """Measure and print."""
    figures = measure(range(arguments.seed, arguments.seed + arguments.episodes))
    print("\n".join(report(figures)))
    return figures


main = figure.file_command(
    run,
    figure.option("--episodes", type=positive, default=5, help="default %(default)s"),
    figure.option(
        "--seed", type=int, default=EVALUATION_SEED, help="first seed (default %(default)s)"
    ),
    file="--json",
)
