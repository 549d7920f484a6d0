"""Time to draw d rows for inputs of dimension d, and to apply them, by d (Simplex Random Features,
Table 1).

    python -m benchmarks.coupling_costs [--out DIR] [--quick]

The paper states complexities: O(d^3) to draw orthogonal, simplex and simplex+ rows, O(d log d) for
their fast variants, and O(d^2) against O(d) numbers to keep. Here are medians of CPU time, all
couplings in turn, and between neighbouring sizes the power of d by which a time grows.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import attention
from attention.projections.fast import FAST_COUPLINGS, FastProjection
from experiments import figure
from experiments.figure import Arguments, Lines

REGULAR = ("iid", "orthogonal", "simplex", "simplex_plus")
SIZES, QUICK_SIZES = (64, 128, 256, 512, 1024), (32, 64)
VECTORS = 64
"""To which rows are applied."""
ROUNDS, SLOW_S = 5, 2.0


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
    names = (*REGULAR, *FAST_COUPLINGS)
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    slow = set[str]()
    for turn in range(ROUNDS + 1):
        for name in names:
            if name in slow:
                continue
            start = time.thread_time()
            rows = drawn(name, d, seed)
            between = time.thread_time()
            rows(u)
            end = time.thread_time()
            if turn or between - start > SLOW_S:
                times[name][0].append(1e3 * (between - start))
                times[name][1].append(1e3 * (end - between))
            if between - start > SLOW_S:
                slow.add(name)
    return {
        name: {
            "draw_ms": statistics.median(draw),
            "apply_ms": statistics.median(apply),
            "kept": kept(name, d),
        }
        for name, (draw, apply) in times.items()
    }


def powers(sizes: Sequence[int], times: Sequence[float]) -> list[float]:
    """p of t ~ d^p between neighbouring sizes."""
    points = zip(sizes, times, strict=True)
    return [math.log(b / a) / math.log(e / d) for (d, a), (e, b) in itertools.pairwise(points)]


def draw(results: dict[str, dict[str, dict[str, float]]]) -> Any:
    """Both times against d."""
    plot, axes = figure.new_figure(2)
    for axis, kind in zip(axes[0], ("draw", "apply"), strict=True):
        for name in (*REGULAR, *FAST_COUPLINGS):
            times = [found[name][f"{kind}_ms"] for found in results.values()]
            axis.loglog([int(d) for d in results], times, "o-", label=name)
        axis.set(title=kind, xlabel="d", ylabel="ms")
    axes[0][0].legend(fontsize="small")
    return plot


def measure(arguments: Arguments) -> dict[str, dict[str, dict[str, float]]]:
    """Times by d and coupling."""
    sizes = QUICK_SIZES if arguments.quick else SIZES
    return {str(d): times_at(d, arguments.seed) for d in sizes}


def show(results: dict[str, dict[str, dict[str, float]]]) -> Lines:
    """Times and numbers kept by coupling and d, with the powers by which they grow."""
    sizes = [int(d) for d in results]
    for kind in ("draw_ms", "apply_ms", "kept"):
        yield f"\n{kind.replace('_', ', ')}\n{'d':14}" + "".join(f"{d:>12}" for d in sizes)
        for name in (*REGULAR, *FAST_COUPLINGS):
            row = [found[name][kind] for found in results.values()]
            grown = ", ".join(f"{power:.1f}" for power in powers(sizes, row))
            form = "12,.0f" if kind == "kept" else "12.3f"
            yield f"{name:14}" + "".join(format(v, form) for v in row) + f"   powers {grown}"


main = figure.command(measure, show, draw)
