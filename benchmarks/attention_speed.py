"""Whole attention, side by side: time, memory and error of ours, Performers and exact attention.

    python -m benchmarks.attention_speed [--lengths 512 2048] [--out DIR] [--device cuda] [--quick]

Batch 1, 8 heads, d = 64, normal queries, keys and values, no gradients. Every round times each
method once, one after the other, so that all see the same machine; figures are medians over rounds,
on a CPU of one thread's CPU time. Scaling by d**-0.5 is inside every time. Peers that are not
installed are left out with a note. Memory is the peak of live tensors beyond the inputs, on a CPU
without compiled kernels (`benchmarks.attention_memory` has them; on a GPU the allocator's). On a
GPU a copy is timed too, to report the share of its bandwidth that a method would use if it read
queries, keys and values once and wrote its output.

Errors are |out - exact| / |exact| over all heads, means over draws of the random vectors, for
queries and keys of length 1.5 after scaling in an 8-dimensional subspace: normal ones of d = 64
have length 2.8 and logits near zero, where no map of this size beats the mean of the values, whose
error is printed too.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

import attention
from benchmarks.attention_peers import Attention, peers
from benchmarks.live_memory import peak_bytes
from experiments import figure
from experiments.figure import Arguments, Lines, Row, Rows
from experiments.timing import Call, Key, in_turn, medians, spent_ms
from training.analysis.agents import check_device, device_name

HEADS, DIM = 8, 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
KINDS = ("bidirectional", "causal")
FAVOR, HYBRID = "FAVOR+ m=256", "angular hybrid m=n=8"
OURS: dict[str, dict[str, Any]] = {
    FAVOR: {"name": "positive", "num_features": 256},
    "OPRF m=256": {"name": "oprf", "num_features": 256},
    HYBRID: {"name": "angular_hybrid", "num_features": 8, "num_lambda_features": 8},
    "angular hybrid m=n=4": {"name": "angular_hybrid", "num_features": 4, "num_lambda_features": 4},
}
PERFORMER, EXACT = "performer-pytorch m=256", "scaled_dot_product_attention"
SHORT = {PERFORMER: "performer", EXACT: "exact", FAVOR: "FAVOR+", HYBRID: "hybrid"}
DATA_SEED = 1000
"""Added for data: random vectors that repeat the queries' numbers would not be independent."""
ERROR_DRAWS = 3
SLOW_MS = 2000.0
"""A call that takes longer is timed once."""
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


@dataclass(frozen=True)
class Bench:
    """Device, and how often computations are timed."""

    device: str
    dtype: torch.dtype
    seed: int
    quick: bool

    def inputs(self, length: int) -> tuple[Tensor, ...]:
        """Normal queries, keys and values, (1, HEADS, length, DIM) each."""
        generator = torch.Generator().manual_seed(self.seed + DATA_SEED)
        draws = (torch.randn(1, HEADS, length, DIM, generator=generator) for _ in range(3))
        return tuple(t.to(self.device, self.dtype) for t in draws)

    def clock(self) -> float:
        """Seconds of CPU time, or of a GPU once it has finished its work."""
        if self.device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def ms(self, calls: dict[Key, Call]) -> dict[Key, float]:
        """Median time of each, all of them in turn in every round."""
        rounds = 2 if self.quick else 7
        return medians(in_turn(calls, lambda ms: 1 if ms > SLOW_MS else rounds, self.clock))

    def peak_mib(self, compute: Call) -> float:
        """Peak memory beyond that of the inputs."""
        if self.device == "cpu":
            return peak_bytes(compute) / 2**20
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        compute()
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    def copied_gb_s(self) -> float:
        """Gigabytes a second that a copy of 1 GiB reads and writes; a median of 10."""
        given = torch.zeros(2**28, device=self.device)
        taken = torch.empty_like(given)
        copies = [spent_ms(lambda: taken.copy_(given), self.clock) for _ in range(11)]
        return 2 * given.nbytes / statistics.median(copies[1:]) / 1e6


def scaled(fm: attention.FeatureMap, causal: bool) -> Attention:
    """Attention with the d**-0.5 of Transformers, by a map for exp(x.y)."""
    return lambda q, k, v: fm.attend(q * DIM**-0.25, k * DIM**-0.25, v, causal=causal)


def whole(bench: Bench, methods: dict[str, Attention], lengths: Sequence[int]) -> Rows:
    """Time and memory of whole attention, one row a length."""
    rows: Rows = []
    for length in lengths:
        q, k, v = bench.inputs(length)
        calls: dict[str, Call] = {name: partial(one, q, k, v) for name, one in methods.items()}
        row: Row = {"length": length, "least_mib": sum(t.nbytes for t in (q, k, v, v)) / 2**20}
        row["ms"] = bench.ms(calls)
        row["peak_mib"] = {name: bench.peak_mib(call) for name, call in calls.items()}
        rows.append(row)
    return rows


def parts(bench: Bench, maps: dict[str, attention.FeatureMap], length: int) -> dict[str, Any]:
    """Milliseconds for building features, for their product with values, and for token scores."""
    q, k, v = bench.inputs(length)
    x, y = q * DIM**-0.25, k * DIM**-0.25

    def features(fm: attention.FeatureMap) -> None:
        for part_x, part_y in zip(x.split(256, -2), y.split(256, -2), strict=True):
            fm.scaled_queries(part_x)
            fm.scaled_keys(part_y)

    def values(phi_q: Tensor, phi_k: Any, signed: bool) -> None:
        attention.linear_attention(
            phi_q, phi_k.mantissa, v, key_log_scale=phi_k.log_scale, signed=signed
        )

    calls: dict[tuple[str, str], Call] = {}
    for name, fm in maps.items():
        phi_q, phi_k = fm.scaled_queries(x).mantissa, fm.scaled_keys(y)
        calls[name, "features"] = partial(features, fm)
        calls[name, "values"] = partial(values, phi_q, phi_k, fm.signed)
        calls[name, "scores"] = partial(fm.token_scores, x, y)
    found = bench.ms(calls)
    return {name: {part: found[name, part] for _, part in list(calls)[:3]} for name in maps}


def errors(bench: Bench, length: int) -> Rows:
    """Time and error of every map, over its sizes."""
    q, k, v = bench.inputs(length)
    generator = torch.Generator().manual_seed(bench.seed + 2 * DATA_SEED)
    basis = attention.projection("orthogonal", 8, DIM, generator)
    basis = normalize(basis, dim=-1).to(bench.device, bench.dtype)
    q, k = (normalize(t[..., :8], dim=-1) @ basis * (1.5 * DIM**0.25) for t in (q, k))
    x, y = (t * DIM**-0.25 for t in (q, k))  # of length 1.5
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double())

    def error(output: Tensor) -> float:
        return float((output.double() - exact).norm() / exact.norm())

    label = "mean of values"
    mean = error(v.mean(-2, keepdim=True).expand_as(v))
    rows: Rows = [{"map": "mean", "label": label, "relative_error": mean}]
    calls: dict[str, Call] = {label: lambda: v.mean(-2)}
    for name, sizes in ERROR_MAPS.items():
        for options in sizes[:1] if bench.quick else sizes:
            found, clamped = [], []
            for draw in range(1 if bench.quick else ERROR_DRAWS):
                seed = bench.seed + draw
                fm = attention.feature_map(name, DIM, **options, seed=seed).to(bench.device)
                attend = scaled(fm.fit(x, y), False)
                found.append(error(attend(q, k, v)))
                clamped.append(attention.diagnose(fm, x, y).clamped_rows)
            label = f"{name} {' '.join(f'{key}={value}' for key, value in options.items())}"
            calls[label] = partial(attend, q, k, v)
            row = {"map": name, **options, "label": label, "output_dim": fm.output_dim}
            row |= {"relative_error": statistics.mean(found)}
            rows.append(row | {"clamped_rows": statistics.mean(clamped)})
    times = bench.ms(calls)
    return [row | {"ms": times[row["label"]]} for row in rows]


@torch.no_grad()
def measure(arguments: Arguments) -> Row:
    """Times of whole attention and of its parts, and errors against time."""
    check_device(arguments.device)
    quick, device, seed = arguments.quick, arguments.device, arguments.seed
    bench = Bench(device, getattr(torch, arguments.dtype), seed, quick)
    lengths = arguments.lengths or ((64, 128) if quick else LENGTHS)
    maps = {n: attention.feature_map(dim=DIM, seed=seed, **o).to(device) for n, o in OURS.items()}
    results: Row = {"device": device, "dtype": arguments.dtype}
    results["device_name"] = device_name(device)
    if device != "cpu":
        results["copied_gb_s"] = bench.copied_gb_s()
    for kind in KINDS:
        causal = kind == "causal"
        others, notes = peers(DIM, causal, device)
        results.setdefault("notes", notes)
        methods = {name: scaled(fm, causal) for name, fm in maps.items()} | others
        results[kind] = whole(bench, methods, lengths)
    results["parts_length"], results["errors_length"] = (128, 64) if quick else (2048, 1024)
    results["parts"] = parts(bench, maps, results["parts_length"])
    results["errors"] = errors(bench, results["errors_length"])
    return results


def _whole_lines(title: str, rows: Rows) -> Lines:
    names = list(rows[0]["ms"])
    yield f"\n{title}, milliseconds (peak MiB)"
    table = [
        (name, *(f"{r['ms'][name]:.1f} ({r['peak_mib'][name]:6.1f})" for r in rows))
        for name in names
    ]
    for slow, fast in ((PERFORMER, FAVOR), (EXACT, FAVOR), (FAVOR, HYBRID), (EXACT, HYBRID)):
        if slow in names:
            ratios = (f"{row['ms'][slow] / row['ms'][fast]:.2f}" for row in rows)
            table.append((f"{SHORT[slow]} / {SHORT[fast]}", *ratios))
    yield from figure.lines(("", *figure.column(rows, "length")), table, 30, 18)


def show(results: Row) -> Lines:
    """Times by length, parts, and errors against time."""
    yield from results["notes"]
    for kind in KINDS:
        rows, copied = results[kind], results.get("copied_gb_s")
        yield from _whole_lines(kind, rows)
        if copied is not None:
            yield f"share of a copy's {copied:.0f} GB/s"
            for name in rows[0]["ms"]:
                shares = (r["least_mib"] * 2**20 / (1e6 * r["ms"][name]) / copied for r in rows)
                yield f"{name:30}" + "".join(f"{share:>18.1%}" for share in shares)
    yield f"\nparts at length {results['parts_length']}, milliseconds"
    for name, found in results["parts"].items():
        yield f"{name:30}" + "".join(f"  {kind} {ms:8.2f}" for kind, ms in found.items())
    yield f"\nerror against exact attention, length {results['errors_length']}"
    for row in results["errors"]:
        yield (
            f"{row['label']:56} {row['ms']:8.2f} ms  error {row['relative_error']:6.3f}"
            f"  clamped {row.get('clamped_rows', 0):.1%}"
        )


def draw(results: Row) -> Any:
    """Times and memory by length, parts, and errors against time."""
    plot, ((*times, memory), (part, error, legend)) = figure.new_figure(3, 2)
    panels = [(axis, kind, "ms") for axis, kind in zip(times, KINDS, strict=True)]
    for axis, kind, key in (*panels, (memory, KINDS[0], "peak_mib")):
        rows = results[kind]
        lengths = figure.column(rows, "length")
        for name in rows[0]["ms"]:
            axis.loglog(lengths, [r[key][name] for r in rows], "o-", label=name)
        axis.set(title=kind, xlabel="length", ylabel=key)
        axis.set_xticks(lengths, lengths, fontsize=7)
        axis.minorticks_off()
    memory.set(title="memory, bidirectional", ylabel="peak MiB")
    times[0].legend(fontsize=6)
    names = list(results["parts"])
    for offset, kind in enumerate(results["parts"][names[0]]):
        heights = [results["parts"][name][kind] for name in names]
        part.bar([i + 0.27 * offset for i in range(len(names))], heights, 0.27, label=kind)
    part.set_xticks([i + 0.27 for i in range(len(names))], names, fontsize=6, rotation=15)
    part.set(title=f"parts, length {results['parts_length']}", ylabel="ms")
    part.legend(fontsize=7)
    for index, name in enumerate(ERROR_MAPS):
        rows = figure.select(results["errors"], map=name)
        line = "o-" if index < 10 else "s--"  # ten colours in the cycle
        found = (figure.column(rows, key) for key in ("ms", "relative_error"))
        error.loglog(*found, line, label=name)
    mean = results["errors"][0]["relative_error"]
    error.axhline(mean, color="grey", ls=":", label="mean of values")
    error.set_xticks([3, 10, 30, 100], [3, 10, 30, 100])
    error.minorticks_off()
    title = f"error against time, length {results['errors_length']}"
    error.set(title=title, xlabel="ms", ylabel="relative error")
    legend.axis("off")
    legend.legend(*error.get_legend_handles_labels(), fontsize=7, loc="center")
    return plot


main = figure.command(
    measure, show, draw,
    figure.option("--lengths", type=int, nargs="+", metavar="L", help="default 512 to 16384"),
    figure.option("--device", default="cpu", help="PyTorch device (cpu, cuda)"),
    figure.option("--dtype", default="float32", choices=("float32", "bfloat16", "float16")),
)  # fmt: skip
