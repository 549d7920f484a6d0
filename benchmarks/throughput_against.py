"""Speed of SteppingStones-v0 here beside that of another checkout of the repository.

    python -m benchmarks.throughput_against DIR [--walks N] [--json FILE]

A machine that others use is faster now and slower then. So two processes, one a checkout, take
turns: the oracle walks 2 s, and its torques alone drive the same walk again (bare physics). Times
are medians of CPU time, factors medians over the turns. DIR's code runs, as in its own benchmark.
"""

import json
import statistics
from pathlib import Path
from typing import Any

from experiments import figure
from experiments.timing import Checkout
from training.analysis.agents import positive
from training.io.config import UserError

HERE = Path(__file__).resolve().parents[1]
SEEDS = 3


def _walker(folder: Path) -> Checkout:
    """A process that walks in one checkout. Raises OSError if it has no such environment."""
    if not (folder / "benchmarks" / "throughput.py").is_file():
        raise OSError("it has no benchmarks/throughput.py")
    walker = Checkout(folder, Path(__file__).with_name("timed_walks.py"))
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
            {name: json.loads(walker.ask(str(turn % SEEDS))) for name, walker in walkers.items()}
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


def run(arguments: figure.Arguments) -> dict[str, Any]:
    """Time both checkouts and print the report. Raises UserError."""
    try:
        figures = measure(Path(arguments.other).resolve(), arguments.walks)
    except OSError as error:
        raise UserError(f"DIR {arguments.other} is no checkout to time: {error}") from None
    print(report(figures))
    return figures


main = figure.file_command(
    run,
    figure.option("other", metavar="DIR", help="the other checkout; its code runs"),
    figure.option("--walks", type=positive, default=24, help="of each (default %(default)s)"),
    file="--json",
)
