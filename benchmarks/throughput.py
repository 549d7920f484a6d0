"""Simulated seconds a core-second of SteppingStones-v0, and where the time goes.

    python -m benchmarks.throughput [--episodes N] [--seed S] [--json FILE]

The oracle walks whole episodes, both cameras at 20 Hz and the controllers running; the time is the
process's CPU time inside the environment, first untouched, for the rate, then with a clock around
each part, for the table. The bound is bare physics: the same robot on the same stones, driven by
the torques of the same walk, with no controller, sensors or cameras.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import gymnasium
import numpy as np

import envs
from envs.cameras import DepthCameras
from envs.stepping_stones import locomotion
from envs.stepping_stones.env import DECISION_S, SteppingStonesEnv
from envs.stepping_stones.estimator import StateEstimator
from envs.stepping_stones.locomotion import Locomotion
from envs.stepping_stones.robot import Laikago
from envs.stepping_stones.sensors import Sensors
from envs.stepping_stones.stance_mpc import StanceMpc
from experiments import figure
from experiments.figure import Arguments
from training.analysis.agents import EVALUATION_SEED, positive

PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "physics": ((Laikago, "advance"),),
    "stance MPC": ((StanceMpc, "solve"),),
    "state reads": ((Laikago, "read"),),
    "estimation, kinematics": (
        (StateEstimator, "update"),
        (locomotion, "forward"),
        (locomotion, "inverse"),
    ),
    "cameras": ((DepthCameras, "render"),),
    "sensor noise": ((Sensors, "measure"), (Sensors, "depth")),
    "gait, swing, torques": ((Locomotion, "torques"), (Locomotion, "sense")),
    "the rest of step": ((SteppingStonesEnv, "step"),),
}
"""Part -> functions; time in a function inside another one counts for the inner one only."""


class Clock:
    """CPU time inside `step` by part, each function without those that it calls."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed where it runs inside `step`."""
        outermost = function is SteppingStonesEnv.step

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not (outermost or self._inner):  # reset uses the same functions
                return function(*args, **kwargs)
            self._inner.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.seconds[part] += spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        return timed


@contextmanager
def replaced(replacements: Sequence[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """Attributes of classes or modules replaced, and put back at the end."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    try:
        for owner, name, new in replacements:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


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
    """CPU milliseconds a simulated second, by part."""
    clock = Clock()
    timed = [
        (owner, name, clock.around(part, getattr(owner, name)))
        for part, functions in PARTS.items()
        for owner, name in functions
    ]
    with replaced(timed):
        simulated = sum(walk(world, seed)[0] for seed in seeds)
    return {part: 1e3 * clock.seconds[part] / simulated for part in PARTS}


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

    with replaced([(Laikago, "place", record_place), (Laikago, "advance", record_advance)]):
        simulated, _ = walk(world, seed)
    robot = world._robot
    end = robot.read().position_m
    robot.place(*start)
    before = time.process_time()
    for torques_n_m, steps in torques:
        robot.advance(torques_n_m, steps)
    spent = time.process_time() - before
    assert (robot.read().position_m == end).all()  # it was the same walk
    return 1e3 * spent / simulated


def reset_ms(world: SteppingStonesEnv, seed: int) -> float:
    """CPU milliseconds of one reset."""
    start = time.process_time()
    world.reset(seed=seed)
    return 1e3 * (time.process_time() - start)


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
        resets = [reset_ms(world, seed) for seed in range(seeds[0], seeds[0] + 50)]
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


def report(figures: dict[str, Any]) -> str:
    """The figures as text."""
    rates = figures["simulated_s_per_core_s_by_episode"]
    spent = figures["ms_per_simulated_s"]
    total = sum(spent.values())
    lines = [
        f"whole environment  {figures['simulated_s_per_core_s']:6.2f} simulated s a core-second "
        f"({min(rates):.2f} to {max(rates):.2f} over {len(rates)} episodes)",
        f"bare physics       {figures['bare_physics_s_per_core_s']:6.2f}",
        f"of a step          {figures['bare_physics_share']:6.2f} is bare physics",
        f"reset              {figures['reset_ms_median']:6.2f} ms "
        f"(at most {figures['reset_ms_max']:.2f})",
        "",
        f"{'part of step':<24} {'ms a simulated s':>16} {'share':>7}",
        *(f"{part:<24} {ms:>16.1f} {ms / total:>7.1%}" for part, ms in spent.items()),
        f"{'all':<24} {total:>16.1f} {1:>7.1%}",
        f"{'bare physics':<24} {figures['bare_physics_ms_per_simulated_s']:>16.1f}",
    ]
    return "\n".join(lines)


def run(arguments: Arguments) -> dict[str, Any]:
    """Measure and print."""
    figures = measure(range(arguments.seed, arguments.seed + arguments.episodes))
    print(report(figures))
    return figures


main = figure.file_command(
    run,
    figure.option("--episodes", type=positive, default=5, help="default %(default)s"),
    figure.option(
        "--seed", type=int, default=EVALUATION_SEED, help="of the first (default %(default)s)"
    ),
    file="--json",
)
