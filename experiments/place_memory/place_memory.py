"""Comparison of feature maps in a memory of places: a profile seen ahead is recalled behind.

    python -m experiments.place_memory.place_memory [--out DIR] [--seed S] [--quick]

A robot moves 2.5 cm per step along stones of 18 to 30 cm, with gaps of 6 to 14 cm between them. At
each step it sees 48 points of the ground, 19 to 77 cm ahead; their places have errors of 1 cm, and
one in twenty confuses hole and stone. They are written into a memory on a circle of 2 m with a
decay of 0.95 per step. Every tenth step it is read at 85 places, 34 cm behind to 50 cm ahead: hole
or not? Errors are root mean squares over those answers, to the true profile and to exact attention
over all points seen, and the share of answers on the wrong side of a half. kappa of every kernel,
and the delta rule's rate, are those of least error to the profile on other paths. FLOPs are those
of a step's write and read as executed; state, the numbers kept. Last, the relative error of the
map's kernel between all places 1 cm apart, for a bandwidth of 4 cm.

A second table says how many features a circle and a torus of 2 m take.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import attention
from attention.theory.harmonic import harmonics
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from training.analysis.op_counter import OpCounter

PERIOD_M, STEP_M, KEPT = 2.0, 0.025, 0.95
STEPS, FIRST, EVERY = 160, 40, 10
SEEN, SEEN_M, ASKED_M = 48, (0.19, 0.77), (-0.34, 0.50)
ASKS = {t: i for i, t in enumerate(range(FIRST, STEPS, EVERY))}
"""Step -> number of the ask."""
CELLS = round(PERIOD_M / 0.01)
"""Cells of the grid."""
KAPPAS = (4.0, 15.0, 30.0, 60.0, 112.0, 224.0, 448.0, 896.0, 1792.0)
RATES = (0.05, 0.2)
SHOWN_KAPPA = 60.0
"""kappa of the kernels that are drawn: a bandwidth of 4 cm."""
EXACT, GRID, MEAN = "exact attention", "grid of 1 cm", "mean of all that was seen"
Build = Callable[[float, float | None], attention.LinearMemory]


@dataclass(frozen=True)
class Paths:
    """Paths and the queries on them."""

    places: Tensor
    """(paths, STEPS, SEEN), metres from the start."""
    holes: Tensor
    """The same, 1 for a hole."""
    asked: Tensor
    """(paths, asks, 85), metres."""
    truth: Tensor
    """The same, 1 for a hole."""


def _harmonic(m: int, rule: str = "sum") -> Build:
    return lambda kappa, rate: attention.LinearMemory(
        1, 1, "harmonic", m, kappa=kappa, period=PERIOD_M, decay=KEPT, rule=rule, rate=rate
    )


def _other(name: str, m: int, rule: str = "sum", **options: Any) -> Build:
    def build(kappa: float, rate: float | None) -> attention.LinearMemory:
        memory = attention.LinearMemory(
            2, 1, name, m, kernel="gaussian", decay=KEPT, rule=rule, rate=rate, **options
        )
        around = on_circle(torch.arange(0, PERIOD_M, 0.01), kappa)
        memory.feature_map.fit(around, around)
        return memory

    return build


MEMORIES: dict[str, Build | None] = {
    EXACT: None,
    GRID: None,
    **{f"harmonic, m = {m}": _harmonic(m) for m in (26, 10, 5, 3)},
    "trig, m = 128": _other("trig", 128),
    "trig, m = 32": _other("trig", 32),
    "oprf, m = 256": _other("oprf", 256),
    "angular_hybrid, m = n = 8": _other("angular_hybrid", 8, num_lambda_features=8),
    "hyperbolic, m = 128": _other("hyperbolic", 128),
    "positive (FAVOR+), m = 256": _other("positive", 256),
    MEAN: None,
    "delta rule, harmonic, m = 26": _harmonic(26, "delta"),
    "delta rule, harmonic, m = 10": _harmonic(10, "delta"),
    "delta rule, trig, m = 32": _other("trig", 32, "delta"),
    "delta rule, positive, m = 256": _other("positive", 256, "delta"),
}
"""How to build each memory, given kappa and the delta rule's rate; three are no such memory."""


def walk(paths: int, seed: int) -> Paths:
    """Draw paths with independent stones."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    count = 24
    stones, gaps = uniform(0.18, 0.30, paths, count), uniform(0.06, 0.14, paths, count)
    edges = torch.stack((stones, gaps), -1).flatten(1).cumsum(-1) - 0.8

    def hole(places: Tensor) -> Tensor:
        passed = torch.searchsorted(edges, places.flatten(1).contiguous())
        return (passed % 2).to(places.dtype).view_as(places)

    bases = STEP_M * torch.arange(STEPS)
    true = bases.unsqueeze(-1) + uniform(*SEEN_M, paths, STEPS, SEEN)
    wrong = torch.rand(true.shape, generator=generator) < 0.05
    seen = true + 0.01 * torch.randn(true.shape, generator=generator)
    asked = bases[FIRST::EVERY].unsqueeze(-1) + torch.linspace(*ASKED_M, 85)
    asked = asked.expand(paths, -1, -1)
    return Paths(seen, (hole(true) - wrong.float()).abs(), asked, hole(asked))


def on_circle(places: Tensor, kappa: float) -> Tensor:
    """Places (...) as points (..., 2) whose Gaussian kernel is von Mises of that kappa."""
    angles = places * (2 * math.pi / PERIOD_M)
    return math.sqrt(kappa) * torch.stack((angles.cos(), angles.sin()), -1)


def keys_of(memory: attention.LinearMemory, places: Tensor, kappa: float) -> Tensor:
    """Map places (...) to the memory's keys (..., d)."""
    return places.unsqueeze(-1) if memory.dim == 1 else on_circle(places, kappa)


def by_memory(memory: attention.LinearMemory, paths: Paths, kappa: float) -> Tensor:
    """Answers (paths, asks, 85), a step at a time."""
    state, answers = memory.initial_state(len(paths.places)), []
    for t in range(STEPS):
        keys = keys_of(memory, paths.places[:, t], kappa)
        state = memory.write(state, keys, paths.holes[:, t].unsqueeze(-1))
        if t in ASKS:
            queries = keys_of(memory, paths.asked[:, ASKS[t]], kappa)
            answers.append(memory.read(state, queries).squeeze(-1))
    return torch.stack(answers, 1)


def by_attention(paths: Paths, kappa: float) -> Tensor:
    """The answers of softmax attention over all points so far, with the logarithms of the discounts
    added.
    """
    answers = []
    for t, i in ASKS.items():
        keys = on_circle(paths.places[:, : t + 1], kappa).flatten(1, 2)
        ages = torch.arange(t, -1, -1.0).repeat_interleave(SEEN)
        logits = on_circle(paths.asked[:, i], kappa) @ keys.mT + math.log(KEPT) * ages
        values = paths.holes[:, : t + 1].flatten(1).unsqueeze(-1)
        answers.append((logits.softmax(-1) @ values).squeeze(-1))
    return torch.stack(answers, 1)


def by_grid(paths: Paths) -> Tensor:
    """The answers of a grid of 1 cm cells with a sum and a count each; 0 in unseen cells."""

    def cell(places: Tensor) -> Tensor:
        return ((places / 0.01).floor().long() % CELLS).expand(2, -1, -1)

    sums, answers = torch.zeros(2, len(paths.places), CELLS), []
    for t in range(STEPS):
        seen = torch.stack((paths.holes[:, t], torch.ones_like(paths.holes[:, t])))
        sums = (KEPT * sums).scatter_add(-1, cell(paths.places[:, t]), seen)
        if t in ASKS:
            total, count = sums.gather(-1, cell(paths.asked[:, ASKS[t]]))
            answers.append(total / count.clamp_min(1e-30))
    return torch.stack(answers, 1)


def answered(label: str, paths: Paths, kappa: float, rate: float | None) -> Tensor:
    """The answers of a memory."""
    if label == MEAN:
        return torch.full_like(paths.truth, float(paths.holes.mean()))
    if label == GRID:
        return by_grid(paths)
    build = MEMORIES[label]
    return by_memory(build(kappa, rate), paths, kappa) if build else by_attention(paths, kappa)


def cost(label: str, paths: Paths, kappa: float, rate: float | None) -> dict[str, int]:
    """Length of features, size of the state, and FLOPs of one step near the end of one path."""
    keys, values = paths.places[:1, :STEPS], paths.holes[:1, :STEPS].flatten(1).unsqueeze(-1)
    if label == MEAN:
        return {"F": 0, "state": 2, "flops": 2 * SEEN + 1}
    if label == GRID:
        # Two numbers a cell fade; a point is placed and adds two; a place is found and divided.
        return {"F": CELLS, "state": 2 * CELLS, "flops": 2 * CELLS + 4 * SEEN + 3 * 85}
    build = MEMORIES[label]
    if build is None:
        points = on_circle(keys, kappa).flatten(1, 2)
        with OpCounter() as counter:
            logits = on_circle(paths.asked[:1, -1], kappa) @ points.mT + torch.zeros(keys.numel())
            logits.softmax(-1) @ values
        return {"F": 0, "state": 2 * keys.numel(), "flops": counter.total}
    memory = build(kappa, rate)
    state = memory.initial_state(1)
    with OpCounter() as counter:
        tokens = keys_of(memory, keys[:, -1], kappa), values[:, -SEEN:]
        memory.read(memory.write(state, *tokens), keys_of(memory, paths.asked[:1, -1], kappa))
    numbers = sum(t.numel() for t in state)
    return {"F": memory.feature_map.output_dim, "state": numbers, "flops": counter.total}


def profile(build: Build) -> tuple[Tensor, Tensor]:
    """The map's kernel and the exact one between places around the circle, (200, 200) each."""
    memory = build(SHOWN_KAPPA, None).double()
    places = torch.arange(0, PERIOD_M, 0.01, dtype=torch.float64)
    keys = keys_of(memory, places, SHOWN_KAPPA)
    found = memory.feature_map.queries(keys) @ memory.feature_map.keys(keys).mT
    pairs = places[:, None, None], places[None, :, None]
    return found, attention.kernels.von_mises(*pairs, SHOWN_KAPPA, PERIOD_M)


def kernel_error(label: str) -> float | None:
    """Relative Frobenius error of the kernel between places 1 cm apart, at SHOWN_KAPPA."""
    build = MEMORIES[label]
    if build is None or "delta" in label:
        return None
    found, exact = profile(build)
    return float((found - exact).norm() / exact.norm())


def needed(kappa: float, tail: float, dim: int) -> int:
    """F of the fewest harmonic features that leave out at most `tail`, by `harmonic_tail`'s sum."""
    _, weights = harmonics(60 if dim == 1 else 2000, (kappa,) * dim)
    return 2 * int((weights.cumsum(0) < 1 - tail).sum()) + 1


def sizes() -> list[dict[str, float]]:
    """Bandwidths, and lengths of features on a circle, on a torus, and of a product of circles."""
    rows = []
    for kappa, tail in itertools.product((15.0, 60.0, 112.0), (0.05, 0.01)):
        each = needed(kappa, 1 - math.sqrt(1 - tail), 1)
        bandwidth = 100 * PERIOD_M / (2 * math.pi * math.sqrt(kappa))
        circle, torus = needed(kappa, tail, 1), needed(kappa, tail, 2)
        row = {"kappa": kappa, "bandwidth_cm": bandwidth, "tail": tail}
        rows.append({**row, "circle": circle, "torus": torus, "product": each**2})
    return rows


def rms(errors: Tensor) -> float:
    return float(errors.square().mean().sqrt())


@torch.no_grad()
def memories(count: int, seed: int, choices: Sequence[float]) -> Rows:
    """A row for each memory; `count` paths to test on, half as many to choose kappa on."""
    chosen_on, tested_on = walk(max(2, count // 2), seed + 1), walk(count, seed + 2)
    rows: Rows = []
    reference: Tensor | None = None
    for label in MEMORIES:
        kappas = (0.0,) if label in (GRID, MEAN) else choices
        rates = RATES if "delta" in label else (None,)
        settings = [*itertools.product(kappas, rates)]
        errors = [rms(answered(label, chosen_on, *s) - chosen_on.truth) for s in settings]
        best = settings[errors.index(min(errors))]
        answers = answered(label, tested_on, *best)
        reference = answers if reference is None else reference
        rows.append(
            {
                "map": label,
                "kappa": best[0] or None,
                "rate": best[1],
                "error": rms(answers - tested_on.truth),
                "to_exact": rms(answers - reference),
                "wrong": float(((answers > 0.5) != (tested_on.truth > 0.5)).float().mean()),
                "kernel_error": kernel_error(label),
                **cost(label, tested_on, *best),
                "answers": answers[0, -1].tolist(),
                "truth": tested_on.truth[0, -1].tolist(),
            }
        )
    return rows


def draw(results: dict[str, Any]) -> Any:
    """Left, the kernels of the maps; right, a remembered profile."""
    plot, ((kernels, memory),) = figure.new_figure(2)
    rows = results["memories"]
    shown = ("harmonic, m = 26", "trig, m = 32", "positive (FAVOR+), m = 256")
    offsets = torch.arange(-100, 100) * 1.0
    for label in shown:
        build = MEMORIES[label]
        assert build is not None
        found, exact = profile(build)
        kernels.plot(offsets, found[100], label=label)
    kernels.plot(offsets, exact[100], "k:", label="exact")
    kernels.set(xlabel="distance, cm", ylabel="kernel", ylim=(-0.5, 1.5))
    places = 100 * torch.linspace(*ASKED_M, 85)
    memory.fill_between(places, rows[0]["truth"], color="0.85", label="holes")
    for row in rows:
        if row["map"] in (EXACT, *shown):
            memory.plot(places, row["answers"], label=row["map"])
    memory.set(xlabel="place, cm ahead of the robot", ylabel="remembered", ylim=(-0.5, 1.8))
    for axis in (kernels, memory):
        axis.legend(fontsize=7)
    return plot


def measure(arguments: Arguments) -> dict[str, Any]:
    """Both tables."""
    count, choices = (4, (112.0,)) if arguments.quick else (24, KAPPAS)
    return {"memories": memories(count, arguments.seed, choices), "sizes": sizes()}


def show(results: dict[str, Any]) -> Lines:
    """Errors and costs by memory, then lengths of features."""
    rows = []
    for row in results["memories"]:
        cells = {key: f"{row[key]:g}" if row[key] else "-" for key in ("F", "kappa", "rate")}
        cells["kernel"] = "-" if row["kernel_error"] is None else f"{row['kernel_error']:.2g}"
        cells["wrong"] = f"{100 * row['wrong']:.1f} %"
        rows.append({**row, **cells, "kflops": row["flops"] / 1e3})
    columns = {"memory": "{map}", "F": "{F}", "state": "{state}", "kFLOP": "{kflops:.1f}",
               "kappa": "{kappa}", "rate": "{rate}", "error": "{error:.3f}",
               "to exact": "{to_exact:.3f}", "wrong": "{wrong}", "kernel": "{kernel}"}  # fmt: skip
    yield from figure.table(rows, columns, 32, 10)
    yield "\nF: kappa, bandwidth, left out: circle, torus, product of two circles"
    for size in results["sizes"]:
        form = "{kappa:>8g}{bandwidth_cm:>8.1f}{tail:>8.0%}{circle:>8}{torus:>8}{product:>8}"
        yield form.format(**size)


main = figure.command(measure, show, draw, plotted=("answers", "truth"))
