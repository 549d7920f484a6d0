"""What training costs beside its episodes, how two workers share it, and whether memory grows.

    python -m benchmarks.es_scaling [--iterations 8] [--repeats 3] [--json FILE] [--set KEY=VALUE]

Trains the packaged job with one worker and with two, in turn, from the same seed, so that both run
the same episodes. Overhead: the share of an iteration's wall time outside episodes, one worker.
Speed-up: wall time of an iteration with one worker over that with two, median over iterations and
repeats; the first iteration, in which workers load, is left out. `--iterations 200 --repeats 1`
with short episodes shows memory: the resident set after each fifth of the run.
"""

import csv
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from experiments import figure
from experiments.figure import Arguments
from training import es
from training.algorithms.workers import Outcome, Task
from training.analysis.agents import positive
from training.collect import pool as pools
from training.collect.pool import Worker

_PAGE = os.sysconf("SC_PAGE_SIZE")


class _TimedPool(pools.InProcessPool[Task, Outcome]):
    """Counts the seconds spent in episodes, iteration by iteration, and the memory after each."""

    def __init__(self, make: Callable[[], Worker[Task, Outcome]]) -> None:
        super().__init__(make)
        self.seconds: list[float] = []
        self.resident_mib: list[float] = []

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        began = time.perf_counter()
        outcomes = super().run(tasks)
        self.seconds.append(time.perf_counter() - began)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
        self.resident_mib.append(resident / 2**20)
        return outcomes


def train(run: Path, count: int, iterations: int, settings: list[str]) -> tuple[Any, list[float]]:
    """Train anew; the timed pool (one worker) or None, and the seconds of each iteration."""
    timed: list[_TimedPool] = []

    class Recorded(_TimedPool):
        def __init__(self, make: Callable[[], Worker[Task, Outcome]]) -> None:
            super().__init__(make)
            timed.append(self)

    with mock.patch.object(pools, "InProcessPool", Recorded):
        status = es.main(
            ["--out", str(run), "--set", *settings, f"workers={count}", f"iterations={iterations}"]
        )
    if status != 0:
        raise SystemExit(status)
    with (run / "metrics.csv").open() as lines:
        wall = [0.0, *(float(row["wall_s"]) for row in csv.DictReader(lines))]
    laps = [after - before for before, after in pairwise(wall)]
    return (timed[0] if timed else None), laps


def run(args: Arguments) -> dict[str, Any]:
    """Measure and print."""
    ratios, overheads, memory = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(args.repeats):
            place = Path(scratch)
            pool, one = train(place / f"one{repeat}", 1, args.iterations, args.set)
            overheads += [1 - s / lap for s, lap in zip(pool.seconds[1:], one[1:], strict=True)]
            every = max(1, args.iterations // 5)
            memory.append([round(mib, 1) for mib in pool.resident_mib[::every]])
            _, two = train(place / f"two{repeat}", 2, args.iterations, args.set)
            ratios += [a / b for a, b in zip(one[1:], two[1:], strict=True)]
    figures = {
        "overhead_share_median": statistics.median(overheads),
        "two_workers_speedup_median": statistics.median(ratios),
        "two_workers_speedup_range": [min(ratios), max(ratios)],
        "resident_mib": memory,
        "iterations": args.iterations,
        "settings": args.set,
    }
    print(f"overhead beside the episodes  {figures['overhead_share_median']:.1%}")
    print(f"two workers against one       {figures['two_workers_speedup_median']:.2f} times")
    print(f"resident memory, MiB          {memory}")
    return figures


main = figure.file_command(
    run,
    figure.option("--iterations", type=positive, default=8),
    figure.option("--repeats", type=positive, default=3),
    figure.option("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE"),
    file="--json",
)
