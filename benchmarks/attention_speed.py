"""Whole attention, side by side: time, memory and error of ours, Performers and exact attention.

    python -m benchmarks.attention_speed [--lengths 512 2048] [--out DIR] [--device cuda] [--quick]

Batch 1, 8 heads, d = 64, normal queries, keys and values, no gradients, two CPU threads. Every
round times each method once, one after the other, so that all see the same machine; figures are
medians over rounds. Scaling by d**-0.5 is inside every time. Peers that are not installed are left
out with a note. Memory is the peak of live tensors beyond the inputs (on a GPU the allocator's). On
a GPU a copy is timed beside: how much of its bandwidth a method would use, did it read queries,
keys and values once and write its output.

Errors are |out - exact| / |exact| over all heads, means over draws of the random vectors, for
queries and keys of length 1.5 after scaling in an 8-dimensional subspace: normal ones of d = 64
have length 2.8 and logits near zero, where no map of this size beats the mean of the values, whose
error is printed too.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import attention
from benchmarks.attention_peers import Attention, peers
from benchmarks.live_memory import peak_bytes
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from training.analysis.agents import check_device, device_name

HEADS, DIM = 8, 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FAVOR, HYBRID = "FAVOR+ m=256", "angular hybrid m=n=8"
OURS: dict[str, dict[str, Any]] = {
    FAVOR: {"name": "positive", "num_features": 256},
    "OPRF m=256": {"name": "oprf", "num_features": 256},
    HYBRID: {"name": "angular_hybrid", "num_features": 8, "num_lambda_features": 8},
    "angular hybrid m=n=4": {
        "name": "angular_hybrid",
        "num_features": 4,
        "num_lambda_features": 4,
    },
}
PERFORMER, EXACT = "performer-pytorch m=256", "scaled_dot_product_attention"
SHORT = {PERFORMER: "performer", EXACT: "exact", FAVOR: "FAVOR+", HYBRID: "hybrid"}
DATA_SEED = 1000
"""Added for data: random vectors that repeat the queries' numbers would not be independent."""
ERROR_DRAWS = 3
SLOW_S = 2.0
"""A call that takes longer is not repeated."""
ERROR_MAPS: dict[str, tuple[dict[str, Any], ...]] = {
    **{
        name: tuple({"num_features": m} for m in (16, 64, 256))
        for name in ("positive", "hyperbolic", "trig", "trig_phase", "oprf", "gerf",
                     "poisson_plus", "geometric_plus", "complex_exponential", "relu", "elu")
    },
    **{
        name: tuple({"num_features": m, "num_lambda_features": m} for m in (4, 8, 16))
        for name in ("angular_hybrid", "gaussian_hybrid")
    },
    "clustered_hybrid": tuple({"num_features": m} for m in (4, 8, 16)),
}  # fmt: skip
"""All maps but `poisson` and `geometric`, which refuse the negative entries of these inputs."""


def inputs(length: int, device: str, dtype: torch.dtype, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed + DATA_SEED)
    draws = (torch.randn(1, HEADS, length, DIM, generator=generator) for _ in range(3))
    return tuple(t.to(device, dtype) for t in draws)


def scaled(fm: attention.FeatureMap, causal: bool) -> Attention:
    """Attention with the d**-0.5 of Transformers, by a map for exp(x.y)."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fm.attend(q * DIM**-0.25, k * DIM**-0.25, v, causal=causal)

    return attend


def seconds(compute: Callable[[], Any], device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    compute()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def rounds_ms(
    computations: Mapping[str, Callable[[], Any]], rounds: int, device: str
) -> dict[str, float]:
    """Median time of each, all of them in turn in every round, after a call to warm up."""
    times: dict[str, list[float]] = {name: [] for name in computations}
    slow = {n for n, c in computations.items() if (seconds(c, device) > SLOW_S)}
    for turn in range(rounds):
        for name, compute in computations.items():
            if turn == 0 or name not in slow:
                times[name].append(1e3 * seconds(compute, device))
    return {name: statistics.median(found) for name, found in times.items()}


def whole(
    methods: dict[str, Attention], lengths: Sequence[int], rounds: int, device: str,
    dtype: torch.dtype, seed: int,
) -> Rows:  # fmt: skip
    """Time and memory of whole attention, one row a length."""
    rows = []
    for length in lengths:
        q, k, v = inputs(length, device, dtype, seed)
        computations = {name: partial(attend, q, k, v) for name, attend in methods.items()}
        least = sum(t.nbytes for t in (q, k, v, v))
        rows.append(
            {
                "length": length,
                "least_mib": least / 2**20,
                "ms": rounds_ms(computations, rounds, device),
                "peak_mib": {n: _peak(c, device) / 2**20 for n, c in computations.items()},
            }
        )
    return rows


def _peak(compute: Callable[[], Any], device: str) -> int:
    if device == "cpu":
        return peak_bytes(compute)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compute()
    return torch.cuda.max_memory_allocated() - before


def parts(
    maps: dict[str, attention.FeatureMap], length: int, rounds: int, device: str,
    dtype: torch.dtype, seed: int,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Milliseconds for building features, for their product with values, and for IAP scores."""
    q, k, v = inputs(length, device, dtype, seed)
    x, y = q * DIM**-0.25, k * DIM**-0.25
    computations: dict[str, Callable[[], Any]] = {}
    for name, fm in maps.items():
        phi_q, phi_k = fm.scaled_queries(x).mantissa, fm.scaled_keys(y)

        def features(fm: attention.FeatureMap = fm) -> None:
            for part_x, part_y in zip(x.split(256, -2), y.split(256, -2), strict=True):
                fm.scaled_queries(part_x)
                fm.scaled_keys(part_y)

        def values(phi_q: Tensor = phi_q, phi_k: Any = phi_k, signed: bool = fm.signed) -> None:
            attention.linear_attention(
                phi_q, phi_k.mantissa, v, key_log_scale=phi_k.log_scale, signed=signed
            )

        def scores(fm: attention.FeatureMap = fm) -> None:
            fm.token_scores(x, y)

        computations |= {f"{name}|features": features, f"{name}|values": values}
        computations[f"{name}|scores"] = scores
    found = rounds_ms(computations, rounds, device)
    kinds = ("features", "values", "scores")
    return {name: {kind: found[f"{name}|{kind}"] for kind in kinds} for name in maps}


def errors(
    length: int, quick: bool, rounds: int, device: str, dtype: torch.dtype, seed: int
) -> Rows:
    """Time and error of every map, over its sizes."""
    q, k, v = inputs(length, device, dtype, seed)
    basis = attention.projection(
        "orthogonal", 8, DIM, torch.Generator().manual_seed(seed + 2 * DATA_SEED)
    )
    basis = torch.nn.functional.normalize(basis, dim=-1).to(device, dtype)
    q, k = (_in_subspace(t, basis) for t in (q, k))
    attend_exactly = torch.nn.functional.scaled_dot_product_attention
    exact = attend_exactly(q.double(), k.double(), v.double())

    def error(output: Tensor) -> float:
        return float((output.double() - exact).norm() / exact.norm())

    mean = error(v.mean(-2, keepdim=True).expand_as(v))
    rows: Rows = [{"map": "mean", "label": "mean of values", "relative_error": mean}]
    computations: dict[str, Callable[[], Any]] = {"mean of values": lambda: v.mean(-2)}
    for name, sizes in ERROR_MAPS.items():
        for options in sizes[:1] if quick else sizes:
            found, clamped = [], []
            for draw in range(1 if quick else ERROR_DRAWS):
                fm = attention.feature_map(name, DIM, **options, seed=seed + draw).to(device)
                x, y = (t * DIM**-0.25 for t in (q, k))
                attend = scaled(fm.fit(x, y), False)
                found.append(error(attend(q, k, v)))
                clamped.append(attention.diagnose(fm, x, y).clamped_rows)
            label = f"{name} {' '.join(f'{key}={value}' for key, value in options.items())}"
            computations[label] = partial(attend, q, k, v)
            row = {"map": name, **options, "label": label, "output_dim": fm.output_dim}
            row |= {"relative_error": statistics.mean(found)}
            rows.append(row | {"clamped_rows": statistics.mean(clamped)})
    times = rounds_ms(computations, rounds, device)
    return [row | {"ms": times[row["label"]]} for row in rows]


def _in_subspace(tokens: Tensor, basis: Tensor) -> Tensor:
    """Of length 1.5 once scaled by d**-0.25, in the span of `basis` (8, d)."""
    kept = torch.nn.functional.normalize(tokens[..., : len(basis)], dim=-1)
    return kept @ basis * (1.5 * DIM**0.25)


def copied_gb_s(device: str) -> float:
    """Gigabytes a second that a copy of 1 GiB reads and writes; a median of 10."""
    given = torch.zeros(2**28, device=device)
    taken = torch.empty_like(given)
    copies = [seconds(lambda: taken.copy_(given), device) for _ in range(11)]
    return 2 * given.nbytes / statistics.median(copies[1:]) / 1e9


def _bandwidth_lines(rows: Rows, copied: float) -> Lines:
    yield (f"share of a copy's {copied:.0f} GB/s")
    for name in rows[0]["ms"]:
        shares = (r["least_mib"] * 2**20 / (1e6 * r["ms"][name]) / copied for r in rows)
        yield f"{name:30}" + "".join(f"{share:>18.1%}" for share in shares)


def _whole_lines(title: str, rows: Rows) -> Lines:
    names = list(rows[0]["ms"])
    yield f"\n{title}, milliseconds (peak MiB)"
    yield f"{'':30}" + "".join(f"{row['length']:>18}" for row in rows)
    for name in names:
        cells = "".join(f"{r['ms'][name]:>9.1f} ({r['peak_mib'][name]:6.1f})" for r in rows)
        yield f"{name:30}{cells}"
    for slow, fast in ((PERFORMER, FAVOR), (EXACT, FAVOR), (FAVOR, HYBRID), (EXACT, HYBRID)):
        if slow in names:
            cells = "".join(f"{row['ms'][slow] / row['ms'][fast]:>18.2f}" for row in rows)
            yield f"{SHORT[slow] + ' / ' + SHORT[fast]:30}{cells}"


def draw(results: dict[str, Any]) -> Any:
    plot, axes = figure.new_figure(3, 2)
    for ax, kind in zip(axes[0], ("bidirectional", "causal"), strict=False):
        rows = results[kind]
        for name in rows[0]["ms"]:
            ax.loglog([r["length"] for r in rows], [r["ms"][name] for r in rows], "o-", label=name)
        ax.set(title=kind, xlabel="length", ylabel="ms")
    axes[0, 0].legend(fontsize=6)
    ax, rows = axes[0, 2], results["bidirectional"]
    for name in rows[0]["ms"]:
        ax.loglog([r["length"] for r in rows], [r["peak_mib"][name] for r in rows], "o-")
    ax.set(title="memory, bidirectional", xlabel="length", ylabel="peak MiB")
    for ax in axes[0]:
        lengths = [row["length"] for row in rows]
        ax.set_xticks(lengths, lengths, fontsize=7)
        ax.minorticks_off()
    ax, names = axes[1, 0], list(results["parts"])
    for offset, kind in enumerate(("features", "values", "scores")):
        heights = [results["parts"][name][kind] for name in names]
        ax.bar([i + 0.27 * offset for i in range(len(names))], heights, 0.27, label=kind)
    ax.set_xticks([i + 0.27 for i in range(len(names))], names, fontsize=6, rotation=15)
    ax.set(title=f"parts, length {results['parts_length']}", ylabel="ms")
    ax.legend(fontsize=7)
    ax = axes[1, 1]
    for index, name in enumerate(ERROR_MAPS):
        rows = [r for r in results["errors"] if r["map"] == name]
        line = "o-" if index < 10 else "s--"  # ten colours in the cycle
        ax.loglog([r["ms"] for r in rows], [r["relative_error"] for r in rows], line, label=name)
    ax.axhline(results["errors"][0]["relative_error"], color="grey", ls=":", label="mean of values")
    ticks = [3, 10, 30, 100]
    ax.set_xticks(ticks, ticks)
    ax.minorticks_off()
    ax.set(
        title=f"error against time, length {results['errors_length']}",
        xlabel="ms",
        ylabel="relative error",
    )
    axes[1, 2].axis("off")
    axes[1, 2].legend(*ax.get_legend_handles_labels(), fontsize=7, loc="center")
    return plot


@torch.no_grad()
def measure(arguments: Arguments) -> dict[str, Any]:
    """Times of whole attention and of its parts, and errors against time."""
    check_device(arguments.device)
    torch.set_num_threads(max(1, arguments.threads))
    quick, device, seed = arguments.quick, arguments.device, arguments.seed
    dtype: torch.dtype = getattr(torch, arguments.dtype)
    lengths = arguments.lengths or ((64, 128) if quick else LENGTHS)
    rounds = 2 if quick else 7
    place: dict[str, Any] = {"device": device, "dtype": dtype, "seed": seed}
    maps = {n: attention.feature_map(dim=DIM, seed=seed, **o).to(device) for n, o in OURS.items()}
    results: dict[str, Any] = {"device": device, "dtype": arguments.dtype}
    results["device_name"] = device_name(device)
    results["threads"] = torch.get_num_threads()
    if device != "cpu":
        results["copied_gb_s"] = copied_gb_s(device)
    for kind in ("bidirectional", "causal"):
        causal = kind == "causal"
        others, notes = peers(DIM, causal, device)
        if not causal:
            results["notes"] = notes
        methods = {name: scaled(fm, causal) for name, fm in maps.items()} | others
        results[kind] = whole(methods, lengths, rounds, **place)
    results["parts_length"] = 128 if quick else 2048
    results["parts"] = parts(maps, results["parts_length"], rounds, **place)
    results["errors_length"] = 64 if quick else 1024
    results["errors"] = errors(results["errors_length"], quick, rounds, **place)
    return results


def show(results: dict[str, Any]) -> Lines:
    """Times by length, parts, and errors against time."""
    yield from results["notes"]
    for kind in ("bidirectional", "causal"):
        yield from _whole_lines(kind, results[kind])
        if "copied_gb_s" in results:
            yield from _bandwidth_lines(results[kind], results["copied_gb_s"])
    yield f"\nparts at length {results['parts_length']}, milliseconds"
    for name, found in results["parts"].items():
        yield f"{name:30}" + "".join(f"  {kind} {ms:8.2f}" for kind, ms in found.items())
    yield f"\nerror against exact attention, length {results['errors_length']}"
    for row in results["errors"]:
        yield (
            f"{row['label']:56} {row['ms']:8.2f} ms  error {row['relative_error']:6.3f}"
            f"  clamped {row.get('clamped_rows', 0):.1%}"
        )


main = figure.command(
    measure, show, draw,
    figure.option("--lengths", type=int, nargs="+", metavar="L", help="default 512 to 16384"),
    figure.option("--device", default="cpu", help="PyTorch device (cpu, cuda)"),
    figure.option("--dtype", default="float32", choices=("float32", "bfloat16", "float16")),
    figure.option("--threads", type=int, default=2, help="CPU threads (default 2)"),
)  # fmt: skip
