"""Speed of SteppingStones-v0 here beside that of another checkout of the repository.

    python -m benchmarks.throughput_against DIR [--walks N] [--json FILE]

A machine that others use is faster now and slower then. So two processes, one a checkout, take
turns: the oracle walks 2 s, and its torques alone drive the same walk again (bare physics). Times
are medians of CPU time, factors medians over the turns. DIR's code runs, as in its own benchmark.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.checkouts import Checkout

HERE = Path(__file__).resolve().parents[1]
_EPISODE_S = 2.0
_SEEDS = 3


def work() -> None:
    """Time the walk of each seed that standard input names, in the checkout that is imported."""
    import gymnasium

    import envs
    from benchmarks import throughput

    env: Any = gymnasium.make(envs.STEPPING_STONES, episode_s=_EPISODE_S).unwrapped
    throughput.walk(env, 0)
    print(json.dumps(str(Path(envs.__file__).resolve().parents[1])), flush=True)
    for line in sys.stdin:
        simulated, spent = throughput.walk(env, int(line))
        print(json.dumps([1e3 * spent / simulated, throughput.bare_physics(env, int(line))]))
        sys.stdout.flush()


def _walker(folder: Path) -> Checkout:
    """A process that walks in one checkout. Raises OSError if it has no such environment."""
    from benchmarks.checkouts import Checkout  # late: `work` runs where there may be none

    if not (folder / "benchmarks" / "throughput.py").is_file():
        raise OSError("it has no benchmarks/throughput.py")
    walker = Checkout(folder, Path(__file__))
    found = json.loads(walker.read() or "null")
    if found != str(folder):
        walker.close()
        raise OSError(f"its code is that of {found}" if found else "nothing walks there")
    return walker


def measure(other: Path, walks: int) -> dict[str, Any]:
    """Milliseconds a simulated second of both checkouts, walk by walk."""
    walkers = {"there": _walker(other), "here": _walker(HERE)}
    try:
        turns = [
            {name: json.loads(walker.ask(str(turn % _SEEDS))) for name, walker in walkers.items()}
            for turn in range(walks)
        ]
    finally:
        for walker in walkers.values():
            walker.close()
    return {
        name: {
            "whole_ms": [turn[name][0] for turn in turns],
            "bare_physics_ms": [turn[name][1] for turn in turns],
        }
        for name in walkers
    }


def report(figures: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{'ms a simulated s, medians':<26} {'whole':>8} {'bare':>8} {'bare / whole':>13}"]
    for name, spent in figures.items():
        whole, bare = spent["whole_ms"], spent["bare_physics_ms"]
        share = statistics.median(b / w for b, w in zip(bare, whole, strict=True))
        medians = statistics.median(whole), statistics.median(bare)
        lines.append(f"{name:<26} {medians[0]:>8.1f} {medians[1]:>8.1f} {share:>13.2f}")
    pairs = zip(figures["there"]["whole_ms"], figures["here"]["whole_ms"], strict=True)
    factors = sorted(there / here for there, here in pairs)
    quarter = len(factors) // 4
    lines.append(
        f"here is {statistics.median(factors):.2f} times as fast "
        f"({factors[quarter]:.2f} to {factors[-1 - quarter]:.2f}, the middle half of "
        f"{len(factors)} turns)"
    )
    return "\n".join(lines)


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    from experiments.figure import provenance, write_json
    from training.analysis.agents import positive
    from training.io.config import ArgumentParser, UserError

    parser = ArgumentParser(
        prog="python -m benchmarks.throughput_against", description=__doc__.split("\n")[0]
    )
    parser.add_argument("other", metavar="DIR", help="the other checkout; its code runs")
    parser.add_argument("--walks", type=positive, default=24, help="of each (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args(argv)
    try:
        figures = measure(Path(arguments.other).resolve(), arguments.walks)
    except OSError as error:
        raise UserError(f"DIR {arguments.other} is no checkout to time: {error}") from None
    print(report(figures))
    if arguments.json:
        write_json("--json", arguments.json, {**figures, "provenance": provenance({})})
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: exit status 0, or 2 for a mistake in the arguments."""
    from training.io.config import exit_status

    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    # As a file of its own it is the process of a checkout, as a module the command.
    if __package__:
        sys.exit(main())
    work()
