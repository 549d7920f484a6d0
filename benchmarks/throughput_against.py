"""Speed of SteppingStones-v0 here beside that of another checkout of the repository.

    python -m benchmarks.throughput_against DIR [--walks N] [--json FILE]

The speed of a shared machine varies. So two processes, one per checkout, take turns: the oracle
walks an episode, and its torques alone drive the same walk again (bare physics). Times are medians
of CPU time, factors medians over the turns. DIR's code runs, as in its own benchmark."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from experiments import figure
from experiments.figure import Lines
from experiments.timing import Checkout
from training.analysis.arguments import positive
from training.io.config import UserError

HERE = Path(__file__).resolve().parents[1]
SEEDS = 3


def _started(folder: Path) -> Checkout:
    """A process that runs rollouts of one checkout. Raises OSError if it has no such
    environment."""
    if not (folder / "benchmarks" / "throughput.py").is_file():
        raise OSError("it has no benchmarks/throughput.py")
    checkout = Checkout(folder, Path(__file__).with_name("timed_walks.py"))
    found = json.loads(checkout.read() or "null")
    if found != str(folder):
        checkout.close()
        raise OSError(f"its code is that of {found}" if found else "no rollout runs there")
    return checkout


def measure(other: Path, walks: int) -> dict[str, Any]:
    """Milliseconds a simulated second of both checkouts, walk by walk."""
    checkouts = {"there": _started(other), "here": _started(HERE)}
    turns: dict[str, list[Any]] = {name: [] for name in checkouts}
    try:
        for turn in range(walks):
            for name, checkout in checkouts.items():
                turns[name].append(json.loads(checkout.ask(str(turn % SEEDS))))
    finally:
        for checkout in checkouts.values():
            checkout.close()
    return {
        name: dict(zip(("whole_ms", "bare_physics_ms"), zip(*found, strict=True), strict=True))
        for name, found in turns.items()
    }


def report(figures: dict[str, Any]) -> Lines:
    """The figures as text."""
    rows = []
    for name, spent in figures.items():
        whole, bare = spent["whole_ms"], spent["bare_physics_ms"]
        share = median(b / w for b, w in zip(bare, whole, strict=True))
        rows.append((name, f"{median(whole):.1f}", f"{median(bare):.1f}", f"{share:.2f}"))
    head = ("ms a simulated s, medians", "whole", "bare", "bare / whole")
    yield from figure.lines(head, rows, 26, 9, 9, 14)
    pairs = zip(figures["there"]["whole_ms"], figures["here"]["whole_ms"], strict=True)
    factors = sorted(there / here for there, here in pairs)
    low, high = factors[len(factors) // 4], factors[-1 - len(factors) // 4]
    yield (
        f"here is {median(factors):.2f} times as fast ({low:.2f} to {high:.2f}, the middle half of "
        f"{len(factors)} turns)"
    )


def run(arguments: figure.Arguments) -> dict[str, Any]:
    """Time both checkouts and print the report. Raises UserError."""
    try:
        figures = measure(Path(arguments.other).resolve(), arguments.walks)
    except OSError as error:
        raise UserError(f"DIR {arguments.other} is no checkout to time: {error}") from None
    print("\n".join(report(figures)))
    return {"results": figures}


main = figure.file_command(
    run,
    figure.option("other", metavar="DIR", help="the other checkout; its code runs"),
    figure.option(
        "--walks", type=positive, default=24, help="rollouts of each checkout (default %(default)s)"
    ),
    file="--json",
)
