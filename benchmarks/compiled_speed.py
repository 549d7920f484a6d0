"""Time of plain PyTorch beside the compiled path of the extra `fast`, side by side.

    python -m benchmarks.compiled_speed [--out DIR]

One thread. Calls take turns; times are medians of CPU time, in milliseconds, after everything is
compiled. A decision scores the tokens of one image without gradients, an update those of 256 images
with gradients, both with d = 4. Attention has 8 heads with d = 64, beside exact attention.
"""

import os
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import normalize, scaled_dot_product_attention

import attention
from attention import FeatureMap
from experiments import figure
from experiments.figure import Arguments, Lines, Row, Rows
from experiments.timing import Call, in_turn

EXACT = "exact"
FAVOR, HYBRID = "positive, m = 256", "angular_hybrid, 8 x 8"
MAPS: dict[str, dict[str, int | str]] = {
    FAVOR: {"name": "positive", "num_features": 256},
    "hyperbolic, m = 256": {"name": "hyperbolic", "num_features": 256},
    "trig, m = 128": {"name": "trig", "num_features": 128},
    HYBRID: {"name": "angular_hybrid", "num_features": 8, "num_lambda_features": 8},
}
EXACT_LENGTH = 2048
"""Largest number of tokens for which exact attention is timed, too."""
DECISIONS, IMAGES, LENGTHS = (384, 1536), 256, (512, 2048, 8192)
REPEATED = 20
"""Decisions that are timed together."""
COLUMNS = {
    "case": "{case}", "map": "{map}", "plain": "{plain_ms:.2f}", "compiled": "{compiled_ms:.2f}",
    "plain / compiled": "{ratio:.1f}", "quartiles": "{lower:.1f} - {upper:.1f}",
}  # fmt: skip


def _map(name: str, dim: int) -> FeatureMap:
    return attention.feature_map(dim=dim, **MAPS[name])  # type: ignore[arg-type]


def decision(name: str, length: int) -> Call:
    """Token scores of one image, computed repeatedly."""
    x, y = _units(1, length)
    features = _map(name, 4)

    def run() -> None:
        for _ in range(REPEATED):
            features.token_scores(x, y)

    return run


def update(name: str, length: int) -> Call:
    """Token scores of a batch, and their gradients."""
    x, y = (u.requires_grad_() for u in _units(IMAGES, length))
    features = _map(name, 4)

    def step() -> None:
        with torch.enable_grad():
            features.token_scores(x, y).sum().backward()

    return step


def attends(name: str, length: int, causal: bool = False) -> Call:
    """Attention of 8 heads, d = dv = 64."""
    generator = torch.Generator().manual_seed(1000)
    x, y, v = torch.randn(3, 1, 8, length, 64, generator=generator)
    if name == EXACT:
        return partial(scaled_dot_product_attention, x, y, v, is_causal=causal)
    return partial(_map(name, 64).attend, x * 64**-0.25, y * 64**-0.25, v, causal=causal)


def _units(images: int, length: int) -> tuple[torch.Tensor, ...]:
    """Queries and keys of length 1, with tokens last in memory, as policies have them."""
    generator = torch.Generator().manual_seed(1000)
    drawn = torch.randn(2, images, 4, length, generator=generator)
    return tuple(normalize(u, dim=1).mT for u in drawn)


def _switched(call: Call, on: bool) -> Call:
    def run() -> None:
        os.environ["FOVEATE_NUMBA"] = "1" if on else "0"
        call()

    return run


@torch.no_grad()
def measure(arguments: Arguments) -> Rows:
    """Each case with and without the compiled path."""
    torch.set_num_threads(1)
    some = 1 if arguments.quick else None
    cases = [("decision", length, name) for length in DECISIONS[:some] for name in MAPS]
    cases += [("update", DECISIONS[0], name) for name in (*MAPS,)[-1 if arguments.quick else 0 :]]
    cases += [
        (kind, length, name)
        for kind in ("attention", "causal attention")
        for length in LENGTHS[:some]
        for name in (FAVOR, HYBRID)
    ]
    causal = partial(attends, causal=True)
    functions: dict[str, Callable[[str, int], Call]] = {
        "decision": decision, "update": update, "attention": attends, "causal attention": causal,
    }  # fmt: skip
    before = os.environ.get("FOVEATE_NUMBA")
    results: Rows = []
    try:
        for kind, length, name in cases:
            call = functions[kind](name, length)
            calls = {"plain": _switched(call, False), "compiled": _switched(call, True)}
            if kind.endswith("attention") and length <= EXACT_LENGTH:
                calls["exact"] = functions[kind](EXACT, length)
            count = REPEATED if kind == "decision" else 1
            found = in_turn(calls, arguments.calls)
            times = {key: [ms / count for ms in some] for key, some in found.items()}
            ratios = [a / b for a, b in zip(times["plain"], times["compiled"], strict=True)]
            row: Row = {"case": f"{kind}, {length} tokens", "map": name}
            row |= {f"{key}_ms": statistics.median(some) for key, some in times.items()}
            lower, _, upper = statistics.quantiles(ratios, n=4)
            row |= {"ratio": statistics.median(ratios), "lower": lower, "upper": upper}
            results.append(row)
    finally:
        os.environ.pop("FOVEATE_NUMBA")
        if before is not None:
            os.environ["FOVEATE_NUMBA"] = before
    return results


def show(results: Rows) -> Lines:
    """A row for each case, and the time of compiled attention as a share of exact attention's."""
    yield from figure.table(results, COLUMNS, 30, 22, 9, 9, 17, 12)
    for row in results:
        if "exact_ms" in row:
            share = row["compiled_ms"] / row["exact_ms"]
            yield f"{row['case']}, {row['map']}: exact {row['exact_ms']:.2f} ms, share {share:.2f}"


main = figure.command(
    measure, show, None,
    figure.option("--calls", type=int, default=15, help="timed calls (default 15)"),
)  # fmt: skip
