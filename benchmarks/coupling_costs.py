"""Time to draw d rows for inputs of dimension d, and to apply them, by d (Simplex Random Features,
Table 1).

    python -m benchmarks.coupling_costs [--out DIR] [--quick]

The paper states complexities: O(d^3) to draw orthogonal, simplex and simplex+ rows, O(d log d) for
their fast variants, and O(d^2) against O(d) numbers to keep. Here are medians of CPU time, all
couplings in turn, and between neighbouring sizes the power of d by which a time grows.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

import attention
from attention.projections.fast import FAST_COUPLINGS, FastProjection
from experiments import figure
from experiments.figure import Arguments, Lines, Row
from experiments.timing import in_turn, medians

REGULAR = ("iid", "orthogonal", "simplex", "simplex_plus")
NAMES = (*REGULAR, *FAST_COUPLINGS)
SIZES, QUICK_SIZES = (64, 128, 256, 512, 1024), (32, 64)
VECTORS = 64
"""Number of vectors that the rows are multiplied with."""
ROUNDS, SLOW_MS = 5, 2000.0
"""Rows that take longer to draw are timed once."""


def drawn(name: str, d: int, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """d rows, as what applies them to (n, d)."""
    generator = torch.Generator().manual_seed(seed)
    if name in FAST_COUPLINGS:
        return FastProjection(name, d, d, generator)
    rows = attention.projection(name, d, d, generator)
    return lambda u: u @ rows.mT


def kept(name: str, d: int) -> int:
    """Numbers that are kept of d rows."""
    return 3 * 2 ** (d - 1).bit_length() + d if name in FAST_COUPLINGS else d * d


def times_at(d: int, seed: int) -> dict[str, dict[str, float]]:
    """Milliseconds to draw and to apply, and numbers kept, by coupling."""
    u = torch.randn(VECTORS, d, generator=torch.Generator().manual_seed(seed))
    rows: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}

    def draw_rows(name: str) -> None:
        rows[name] = drawn(name, d, seed)

    def apply(name: str) -> None:
        rows[name](u)

    calls = {(name, call): partial(call, name) for name in NAMES for call in (draw_rows, apply)}
    ms = medians(in_turn(calls, lambda ms: 1 if ms > SLOW_MS else ROUNDS, time.thread_time))
    return {
        name: {"draw_ms": ms[name, draw_rows], "apply_ms": ms[name, apply], "kept": kept(name, d)}
        for name in NAMES
    }


def powers(sizes: Sequence[int], times: Sequence[float]) -> list[float]:
    """p of t ~ d^p between neighbouring sizes."""
    points = zip(sizes, times, strict=True)
    return [math.log(b / a) / math.log(e / d) for (d, a), (e, b) in itertools.pairwise(points)]


def draw(results: dict[str, dict[str, Row]]) -> Any:
    """Both times against d."""
    rows = [
        {"d": int(d), "coupling": name, **row}
        for d, found in results.items()
        for name, row in found.items()
    ]
    return figure.plot(rows, "d", ("draw_ms", "apply_ms"), "coupling", scales=("log", "log"))


def measure(arguments: Arguments) -> dict[str, dict[str, dict[str, float]]]:
    """Times by d and coupling."""
    sizes = QUICK_SIZES if arguments.quick else SIZES
    return {str(d): times_at(d, arguments.seed) for d in sizes}


def show(results: dict[str, dict[str, dict[str, float]]]) -> Lines:
    """Times and numbers kept by coupling and d, with the powers by which they grow."""
    sizes = [int(d) for d in results]
    for kind in ("draw_ms", "apply_ms", "kept"):
        rows = []
        for name in NAMES:
            row = [found[name][kind] for found in results.values()]
            grown = ", ".join(f"{power:.1f}" for power in powers(sizes, row))
            form = ",.0f" if kind == "kept" else ".3f"
            rows.append((name, *(format(v, form) for v in row), f"  powers {grown}"))
        yield f"\n{kind.replace('_', ', ')}"
        yield from figure.lines(("d", *map(str, sizes)), rows, 14, *[12] * len(sizes), -1)


main = figure.command(measure, show, draw)
