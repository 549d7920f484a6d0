"""Time of a step of BimanualSweep-v0 and of a reset, and where it goes.

    python -m benchmarks.sweep_time [--out DIR] [--seed S] [--quick]

The expert acts; the figures are medians over its steps of CPU milliseconds, with images of two
sizes and without, first untouched, for the whole, then with a clock around each part.
"""

import os
import statistics
from functools import partial
from typing import Any

import gymnasium

import envs
from envs.bimanual_sweep.arm import Arm
from envs.bimanual_sweep.camera import SweepCamera
from envs.bimanual_sweep.env import BimanualSweepEnv
from envs.bimanual_sweep.meshes import Movers
from envs.bimanual_sweep.rasteriser import Rasteriser
from envs.bimanual_sweep.scene import Scene
from envs.bimanual_sweep.targets import ToolTargets
from experiments import figure
from experiments.figure import Arguments, Lines, Row
from experiments.timing import Clock, Parts, clocked, spent_ms

READING = ((Arm, "tool_pose"), (Scene, "ball_positions_m"), (Scene, "arms_touch"))
STEP_PARTS: Parts = {
    "inverse kinematics": ((ToolTargets, "move"),),
    "physics": ((Scene, "advance"),),
    "reading state": READING,
    "drawing what moves": ((Rasteriser, "draw"), (Movers, "poses"), (SweepCamera, "_draw")),
    "copying the background": ((SweepCamera, "image"),),
    "observation, info, the rest": ((BimanualSweepEnv, "step"),),
}
RESET_PARTS: Parts = {
    "building the scene": ((Scene, "__init__"),),
    "start poses": ((ToolTargets, "__init__"),),
    "drawing the background": ((SweepCamera, "begin"), (SweepCamera, "_draw")),
    "reading state": READING,
    "first image, the rest": ((SweepCamera, "image"), (BimanualSweepEnv, "reset")),
}
COLUMNS: dict[str, dict[str, Any]] = {
    "500 x 500 pixels": {"image_px": 500},
    "250 x 250 pixels": {"image_px": 250},
    "no images": {"images": False},
}
"""Column -> settings of the environment."""
AT_MOST_MS = (45.0, 45.0, 20.0)
"""The limit of a step, in each column."""


def play(env: BimanualSweepEnv, seed: int, steps: int) -> tuple[list[float], list[float]]:
    """CPU milliseconds of each of the expert's steps, and of each of its decisions."""

    def decide(chosen: list[Any]) -> None:
        chosen.append(env.expert_action())

    env.reset(seed=seed)
    stepping, deciding = list[float](), list[float]()
    for _ in range(steps):
        action: list[Any] = []
        deciding.append(spent_ms(partial(decide, action)))
        stepping.append(spent_ms(partial(env.step, action[0])))
    return stepping, deciding


def times_of(env: BimanualSweepEnv, seed: int, steps: int, resets: int) -> Row:
    """Milliseconds of one environment; the first steps and resets are a warm-up.

    A mean stands beside the median of the expert's decisions, because few of them plan.
    """
    play(env, seed, 5)
    stepping, deciding = play(env, seed, steps)
    whole = [spent_ms(partial(env.reset, seed=seed + number)) for number in range(resets)]
    with clocked(STEP_PARTS, "step") as clock:
        play(env, seed, steps)
    with clocked(RESET_PARTS, "reset") as reset_clock:
        for number in range(resets):
            env.reset(seed=seed + number)
    return {
        "step_ms": statistics.median(stepping),
        "step_ms_parts": _by_part(STEP_PARTS, clock),
        "expert_ms": statistics.median(deciding),
        "expert_ms_mean": statistics.mean(deciding),
        "reset_ms": statistics.median(whole),
        "reset_ms_parts": _by_part(RESET_PARTS, reset_clock),
    }


def _by_part(parts: Parts, clock: Clock) -> dict[str, float]:
    return {part: 1e3 * statistics.median(call[part] for call in clock.calls) for part in parts}


def measure(arguments: Arguments) -> dict[str, Any]:
    """Milliseconds by column."""
    steps, resets = (12, 3) if arguments.quick else (120, 20)
    results: dict[str, Any] = {"steps": steps, "resets": resets, "load": os.getloadavg()[0]}
    for column, settings in COLUMNS.items():
        with gymnasium.make(envs.BIMANUAL_SWEEP, **settings) as env:
            world = env.unwrapped
            assert isinstance(world, BimanualSweepEnv)
            results[column] = times_of(world, arguments.seed, steps, resets)
    return results


def show(results: dict[str, Any]) -> Lines:
    """Milliseconds by part and column."""
    found = [results[column] for column in COLUMNS]
    rows: list[tuple[Any, ...]] = []
    for whole in ("step", "reset"):
        parts = f"{whole}_ms_parts"
        rows += [(f"  {part}", *(f[parts][part] for f in found)) for part in found[0][parts]]
        rows.append((whole, *(f[f"{whole}_ms"] for f in found)))
        if whole == "step":
            rows.append(("step, at most", *AT_MOST_MS))
            rows.append(("expert's decision", *(f["expert_ms"] for f in found)))
            rows.append(("expert's decision, mean", *(f["expert_ms_mean"] for f in found)))
        rows.append(("",))
    table = ((name, *(f"{ms:.2f}" for ms in times)) for name, *times in rows)
    yield from figure.lines(("median ms of CPU time", *COLUMNS), table, 36, 18)
    yield "Parts are timed in another run than the whole, and the clocks take time too."
    yield f"Load of the machine (1 minute): {results['load']:.1f}"


def draw(results: dict[str, Any]) -> Any:
    """Bars of the parts of a step."""
    plot, ((axis,),) = figure.new_figure(1, size=(7, 2.6))
    left = [0.0] * len(COLUMNS)
    for part in STEP_PARTS:
        spent = [results[column]["step_ms_parts"][part] for column in COLUMNS]
        axis.barh(list(COLUMNS), spent, left=left, label=part)
        left = [start + ms for start, ms in zip(left, spent, strict=True)]
    axis.set_xlabel("median ms of a step")
    axis.legend(fontsize="x-small")
    return plot


main = figure.command(measure, show, draw)
