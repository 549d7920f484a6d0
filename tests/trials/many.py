"""The command line of a trial: many cases from a seed, each in a separate folder."""

from __future__ import annotations

import argparse
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Found(NamedTuple):
    """Result of one case."""

    kind: str
    faults: list[str]
    outcome: str
    """How it ended, such as "status 2"; counted."""
    said: str = ""
    """The case and what was printed, for the report of a fault."""


Try = Callable[[int, int, Path, Path], Found]
"""Tries case `number` of a seed, with the materials, in a new folder."""


def many(
    name: str, prepare: Callable[[Path], None], try_one: Try, count: int, argv: list[str] | None
) -> int:
    """Try many cases, print those with a fault and keep their folders; 1 if there is any."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.trials.{name}")
    parser.add_argument(
        "--count", "--inputs", type=int, default=count, help="(default %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="a new folder to work in")
    args = parser.parse_args(argv)
    out = args.out.resolve()
    out.mkdir(parents=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    prepare(out / "materials")
    bad, ends = 0, Counter[str]()
    for number in range(args.first, args.first + args.count):
        folder = out / f"{number:05d}"
        found = try_one(number, args.seed, out / "materials", folder)
        os.chdir(ROOT)
        ends[found.outcome] += 1
        if not found.faults:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        bad += 1
        print(f"{number} {found.kind}: {'; '.join(found.faults)}")
        print("    " + found.said.strip()[-1200:].replace("\n", "\n    "), flush=True)
    counted = ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
    print(f"{args.count} cases, {bad} with a fault: {counted}", flush=True)
    return 1 if bad else 0
