"""The table of docs/guide/gpu.md: attention in float32 and bfloat16, as Markdown.

    python -m benchmarks.gpu_table --device cuda --record

Inputs, methods and times are those of `benchmarks.attention_speed`. FAVOR+ and the hybrid are timed
a second time as `torch.compile` compiles `attend`.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import torch

import attention
from benchmarks.attention_peers import Attention, peers
from benchmarks.attention_speed import DIM, EXACT, FAVOR, HYBRID, KINDS, OURS, Bench, scaled
from experiments import figure
from experiments.figure import Arguments, Lines, Row, Rows
from experiments.timing import Call
from training.analysis.agents import check_device, device_name

LENGTHS, DTYPES = (2048, 8192, 32768), ("float32", "bfloat16")
LABELS = {EXACT: "exact (PyTorch's fused)"}


@torch.no_grad()
def measure(arguments: Arguments) -> Row:
    """A row of milliseconds for each kind and method: those in float32, then in bfloat16."""
    device, seed, quick = arguments.device, arguments.seed, arguments.quick
    check_device(device)
    lengths = (64, 128) if quick else LENGTHS
    maps = {n: attention.feature_map(dim=DIM, seed=seed, **o).to(device) for n, o in OURS.items()}
    results: Row = {"device_name": device_name(device), "lengths": lengths, "notes": []}
    found: dict[tuple[str, str], list[float]] = {}
    for kind in KINDS:
        others, results["notes"] = peers(DIM, kind == "causal", device)
        ours = {name: scaled(fm, kind == "causal") for name, fm in maps.items()}
        for dtype in DTYPES:
            bench = Bench(device, getattr(torch, dtype), seed, quick)
            methods = ours | _compiled(ours, arguments.backend) | others
            for length in lengths:
                given = bench.inputs(length)
                calls: dict[str, Call] = {n: partial(one, *given) for n, one in methods.items()}
                for name, ms in bench.ms(calls).items():
                    found.setdefault((kind, name), []).append(ms)
    results["rows"] = [
        {"kind": kind, "method": LABELS.get(name, name.replace("=", " = ")), "ms": ms}
        for (kind, name), ms in found.items()
    ]
    return results


def _compiled(methods: dict[str, Attention], backend: str) -> dict[str, Attention]:
    torch.compiler.reset()  # each length, map and dtype is one more graph of the same code
    return {
        f"{name}, compiled": torch.compile(
            methods[name], backend=backend, fullgraph=True, dynamic=False
        )
        for name in (FAVOR, HYBRID)
    }


def table(lengths: Sequence[int], rows: Rows) -> Lines:
    """The lines of a table in Markdown."""
    heads = [f"{length:,}" for length in lengths]
    columns = [cell for dtype in DTYPES for cell in (f"{heads[0]}, {dtype}", *heads[1:])]
    yield _line(["tokens", *columns])
    yield "|---" * (len(columns) + 1) + "|"
    for row in rows:
        yield _line([row["method"], *(f"{ms:.1f}" for ms in row["ms"])])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def show(results: Row) -> Lines:
    """The device, and a table for each kind."""
    yield from results["notes"]
    yield results["device_name"]
    for kind in KINDS:
        yield f"\n{kind}, milliseconds\n"
        yield from table(results["lengths"], figure.select(results["rows"], kind=kind))


main = figure.command(
    measure, show, None,
    figure.option("--device", default="cuda", help="PyTorch device (default cuda)"),
    figure.option("--backend", default="inductor", help="of torch.compile (default inductor)"),
)  # fmt: skip
