"""Overhead of training beside its episodes, speed-up by two workers, and growth of memory.

    python -m benchmarks.es_scaling [--iterations 8] [--repeats 3] [--json FILE] [--set KEY=VALUE]

Trains the packaged job with one worker and with two, in turn, from the same seed, so that both run
the same episodes. Overhead: the share of an iteration's wall time outside episodes, one worker.
Speed-up: wall time of an iteration with one worker over that with two, median over iterations and
repeats; the first iteration, in which workers load, is left out. `--iterations 200 --repeats 1`
with short episodes shows memory: the resident set after each fifth of the run.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from experiments import figure
from experiments.figure import Arguments
from training import es
from training.analysis.arguments import positive
from training.collect import pool as pools
from training.io.metrics import read_metrics


def train(
    run: Path, count: int, iterations: int, settings: list[str]
) -> tuple[list[float], list[float], list[float]]:
    """Train anew. By iteration: seconds, seconds spent in episodes, and resident memory in MiB
    after it; the latter two are empty with more than one worker.
    """
    episodes_s, resident_mib = list[float](), list[float]()
    original = pools.InProcessPool.run

    def timed(pool: Any, tasks: Any) -> Any:
        began = time.perf_counter()
        outcomes = original(pool, tasks)
        if not tasks:
            return outcomes
        episodes_s.append(time.perf_counter() - began)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident_mib.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        return outcomes

    changes = [*settings, f"workers={count}", f"iterations={iterations}"]
    with mock.patch.object(pools.InProcessPool, "run", timed):
        status = es.main(["--out", str(run), "--set", *changes])
    if status != 0:
        raise SystemExit(status)
    wall_s = read_metrics(run).columns["wall_s"]
    return np.diff(wall_s, prepend=0.0).tolist(), episodes_s, resident_mib


def run(args: Arguments) -> dict[str, Any]:
    """Measure and print."""
    ratios, overheads, memory = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(args.repeats):
            place = Path(scratch)
            one, episodes_s, mib = train(place / f"one{repeat}", 1, args.iterations, args.set)
            overheads += [1 - s / lap for s, lap in zip(episodes_s[1:], one[1:], strict=True)]
            memory.append([round(value, 1) for value in mib[:: max(1, args.iterations // 5)]])
            two, _, _ = train(place / f"two{repeat}", 2, args.iterations, args.set)
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
    figure.SET,
    file="--json",
)
