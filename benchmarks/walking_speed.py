"""Simulated seconds a core-second of SteppingStones-v0, and where the time goes.

    python -m benchmarks.walking_speed [RUN_OR_CHECKPOINT | --policy oracle] [--out speed.json]

Whole episodes at 20 Hz with both cameras and the controllers running, in CPU time of one process:
first untouched, which gives the rate, then with a clock around each part, which gives the shares
(in wall time, whose clock is cheaper to read, so leave the machine alone meanwhile).
Physics alone (applying torques and stepping) is the bound that no controller can beat.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import gymnasium
import torch

from envs.cameras import DepthCameras
from envs.stepping_stones.env import DECISION_S, SteppingStonesEnv
from envs.stepping_stones.locomotion import Locomotion
from envs.stepping_stones.robot import Laikago
from envs.stepping_stones.sensors import Sensors
from envs.stepping_stones.stance_mpc import StanceMpc
from training.config import ArgumentParser, UserError, exit_status
from training.episode import Policy, run_episode
from training.players import add_arguments, find_players
from training.run_log import provenance

PARTS: dict[str, tuple[tuple[type, str], ...]] = {
    "physics": ((Laikago, "advance"),),
    "stance MPC": ((StanceMpc, "solve"),),
    "swing, torques": ((Locomotion, "torques"),),
    "reading the state": ((Laikago, "read"),),
    "sensors, estimator": (
        (Locomotion, "sense"),
        (Sensors, "measure"),
        (Sensors, "depth"),
    ),
    "depth cameras": ((DepthCameras, "render"),),
    "reset": ((SteppingStonesEnv, "reset"),),
    "step, the rest": ((SteppingStonesEnv, "step"),),
}
"""Part -> methods; time in a method inside another one counts for the inner one only."""


class _Clock:
    """Wall time by part, each method without those that it calls."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - start
                self.seconds[part] += spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        return timed


@contextmanager
def _clocked() -> Iterator[_Clock]:
    clock, originals = _Clock(), []
    for part, methods in PARTS.items():
        for owner, name in methods:
            originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, clock.around(part, getattr(owner, name)))
    try:
        yield clock
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _run(
    env: gymnasium.Env,
    policy: Policy,
    seeds: Sequence[int],
    clock: Callable[[], float] = time.process_time,
) -> tuple[float, float]:
    """Simulated seconds, and seconds by `clock` (CPU time) that they took."""
    start, steps = clock(), 0
    with torch.no_grad():
        for seed in seeds:
            steps += run_episode(env, policy, seed).steps
    return steps * DECISION_S, clock() - start


def _reset_ms(env: gymnasium.Env, seeds: Sequence[int]) -> list[float]:
    times = []
    for seed in seeds:
        start = time.process_time()
        env.reset(seed=seed)
        times.append(1e3 * (time.process_time() - start))
    return times


def measure(env: gymnasium.Env, policy: Policy, seeds: Sequence[int]) -> dict[str, Any]:
    """The figures of the benchmark; the first episode is a warm-up."""
    _run(env, policy, seeds[:1])
    simulated_s, cpu_s = _run(env, policy, seeds)
    resets = _reset_ms(env, seeds)
    with _clocked() as clock:
        clocked_s, total_s = _run(env, policy, seeds, time.perf_counter)
    spent = {part: clock.seconds[part] for part in PARTS}
    spent["policy, loop"] = total_s - sum(spent.values())
    return {
        "simulated_s": simulated_s,
        "simulated_s_per_core_s": simulated_s / cpu_s,
        "physics_alone_s_per_core_s": clocked_s / spent["physics"],
        "ms_per_simulated_s": {part: 1e3 * s / clocked_s for part, s in spent.items()},
        "reset_ms_median": statistics.median(resets),
        "reset_ms_max": max(resets),
        "seeds": list(seeds),
    }


def _report(figures: dict[str, Any]) -> None:
    print(
        f"{figures['simulated_s_per_core_s']:.2f} simulated seconds a core-second "
        f"({figures['simulated_s']:.0f} s simulated; physics alone "
        f"{figures['physics_alone_s_per_core_s']:.2f})"
    )
    print(f"reset {figures['reset_ms_median']:.1f} ms (at most {figures['reset_ms_max']:.1f})")
    total = sum(figures["ms_per_simulated_s"].values())
    print(f"{'part':<20} {'ms per simulated s':>18} {'share':>7}")
    for part, spent_ms in figures["ms_per_simulated_s"].items():
        print(f"{part:<20} {spent_ms:>18.1f} {spent_ms / total:>7.1%}")


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    parser = ArgumentParser(
        prog="benchmarks.walking_speed", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("run", nargs="?", metavar="RUN_OR_CHECKPOINT", help="default: the oracle")
    add_arguments(parser, episodes=10)
    parser.add_argument("--out", metavar="FILE", help="write the figures here as JSON")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    files = [] if arguments.run is None else [arguments.run]
    scripted = arguments.policy if files or arguments.policy else ["oracle"]
    players = find_players(files, scripted, arguments.env, arguments.set)
    if len(players) != 1:
        raise UserError("give one RUN_OR_CHECKPOINT, or one --policy oracle|blind|random")
    (player,) = players
    with player.make_env() as env:
        if not isinstance(env.unwrapped, SteppingStonesEnv):
            raise UserError(f"this benchmark is for SteppingStones-v0, got --env {player.env_id}")
        seeds = range(arguments.seed, arguments.seed + arguments.episodes)
        figures = {"policy": player.name, **measure(env, player.make_policy(env), seeds)}
    _report(figures)
    if arguments.out:
        figures["provenance"] = provenance({"env": player.env_settings})
        try:
            Path(arguments.out).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out {arguments.out} cannot be written: {error.strerror}") from None
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: exit status 0, or 2 for a mistake in the arguments."""
    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    sys.exit(main())
