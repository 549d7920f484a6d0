"""Time of a step of BimanualSweep-v0 and of a reset, and where it goes.

    python -m benchmarks.sweep_time [--out DIR] [--seed S] [--quick]

The expert acts; the figures are medians over its steps of CPU milliseconds, with pictures of two
sizes and without, first untouched, for the whole, then with a clock around each part.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
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
from experiments.figure import Arguments

STEP_PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "inverse kinematics": ((ToolTargets, "move"),),
    "physics": ((Scene, "advance"),),
    "reading state": (
        (Arm, "tool_pose"),
        (Scene, "ball_positions_m"),
        (Scene, "arms_touch"),
    ),
    "drawing what moves": ((Rasteriser, "draw"), (Movers, "poses"), (SweepCamera, "_draw")),
    "copying the background": ((SweepCamera, "picture"),),
    "observation, info, the rest": ((BimanualSweepEnv, "step"),),
}
RESET_PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "building the scene": ((Scene, "__init__"),),
    "start poses": ((ToolTargets, "__init__"),),
    "drawing the background": ((SweepCamera, "begin"), (SweepCamera, "_draw")),
    "reading state": ((Arm, "tool_pose"), (Scene, "ball_positions_m"), (Scene, "arms_touch")),
    "first picture, the rest": ((SweepCamera, "picture"), (BimanualSweepEnv, "reset")),
}
"""Part -> functions; time in a function inside another one counts for the inner one only."""
COLUMNS: dict[str, dict[str, Any]] = {
    "500 x 500 pixels": {"image_px": 500},
    "250 x 250 pixels": {"image_px": 250},
    "no pictures": {"images": False},
}
"""Column -> settings of the environment."""
AT_MOST_MS = (45.0, 45.0, 20.0)
"""What a step may take, in each column."""


class Clock:
    """CPU seconds by part of each call of the outermost function."""

    def __init__(self, outermost: str) -> None:
        self.calls: list[defaultdict[str, float]] = []
        self._outermost, self._inner = outermost, list[float]()

    def around(self, part: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed where it runs inside the outermost one."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._inner:
                if name != self._outermost:
                    return function(*args, **kwargs)
                self.calls.append(defaultdict(float))
            self._inner.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.calls[-1][part] += spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        return timed


@contextmanager
def clocked(parts: dict[str, tuple[tuple[Any, str], ...]], outermost: str) -> Iterator[Clock]:
    """A clock around each part's functions, which are put back at the end."""
    clock = Clock(outermost)
    functions = [(part, owner, name) for part, pairs in parts.items() for owner, name in pairs]
    originals = [(owner, name, getattr(owner, name)) for _, owner, name in functions]
    try:
        for part, owner, name in functions:
            setattr(owner, name, clock.around(part, name, getattr(owner, name)))
        yield clock
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _median_ms(seconds: Sequence[float]) -> float:
    return 1e3 * statistics.median(seconds)


def play(env: BimanualSweepEnv, seed: int, steps: int) -> tuple[list[float], list[float]]:
    """CPU seconds of each of the expert's steps, and of each of its decisions."""
    env.reset(seed=seed)
    stepping, deciding = [], []
    for _ in range(steps):
        start = time.process_time()
        action = env.expert_action()
        middle = time.process_time()
        env.step(action)
        stepping.append(time.process_time() - middle)
        deciding.append(middle - start)
    return stepping, deciding


def times_of(env: BimanualSweepEnv, seed: int, steps: int, resets: int) -> dict[str, Any]:
    """Milliseconds of one environment; the first steps and resets are a warm-up.

    A mean stands beside the median of the expert's decisions, because few of them plan.
    """
    play(env, seed, 5)
    stepping, deciding = play(env, seed, steps)
    whole = []
    for number in range(resets):
        start = time.process_time()
        env.reset(seed=seed + number)
        whole.append(time.process_time() - start)
    with clocked(STEP_PARTS, "step") as clock:
        play(env, seed, steps)
    with clocked(RESET_PARTS, "reset") as reset_clock:
        for number in range(resets):
            env.reset(seed=seed + number)
    return {
        "step_ms": _median_ms(stepping),
        "step_ms_parts": _by_part(STEP_PARTS, clock),
        "expert_ms": _median_ms(deciding),
        "expert_ms_mean": 1e3 * statistics.mean(deciding),
        "reset_ms": _median_ms(whole),
        "reset_ms_parts": _by_part(RESET_PARTS, reset_clock),
    }


def _by_part(parts: dict[str, Any], clock: Clock) -> dict[str, float]:
    return {part: _median_ms([call[part] for call in clock.calls]) for part in parts}


def show(results: dict[str, Any]) -> list[str]:
    """Milliseconds by part and column."""
    columns = list(COLUMNS)
    lines = [f"{'median ms of CPU time':<36}" + "".join(f"{name:>18}" for name in columns)]

    def row(name: str, values: Sequence[float]) -> None:
        lines.append(f"{name:<36}" + "".join(f"{value:>18.2f}" for value in values))

    for whole in ("step", "reset"):
        for part in results[columns[0]][f"{whole}_ms_parts"]:
            row(f"  {part}", [results[c][f"{whole}_ms_parts"][part] for c in columns])
        row(whole, [results[c][f"{whole}_ms"] for c in columns])
        if whole == "step":
            row("step, at most", AT_MOST_MS)
            row("expert's decision", [results[c]["expert_ms"] for c in columns])
            row("expert's decision, mean", [results[c]["expert_ms_mean"] for c in columns])
        lines.append("")
    lines.append("Parts are timed in another run than the whole, and the clocks take time too.")
    lines.append(f"Load of the machine (1 minute): {results['load']:.1f}")
    return lines


def draw(results: dict[str, Any]) -> Any:
    """Bars of the parts of a step."""
    plot, axes = figure.new_figure(1, size=(7, 2.6))
    (axis,) = axes[0]
    left = [0.0] * len(COLUMNS)
    for part in STEP_PARTS:
        spent = [results[column]["step_ms_parts"][part] for column in COLUMNS]
        axis.barh(list(COLUMNS), spent, left=left, label=part)
        left = [start + ms for start, ms in zip(left, spent, strict=True)]
    axis.set_xlabel("median ms of a step")
    axis.legend(fontsize="x-small")
    return plot


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


main = figure.command(measure, show, draw)
