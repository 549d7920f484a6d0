"""Peak memory of attention over many tokens, beyond its queries, keys, values and outputs.

    python -m benchmarks.attention_memory [--length 65536] [--out DIR]

Batch 1, 8 heads, d = 64, float32, no gradients, plain PyTorch and the compiled path of the extra
`fast`. A process for each case computes attention over a few tokens, which loads and compiles all
code, and then over all of them. The figure is how far the peak of its resident memory, which Linux
counts, rises by that, without the outputs.
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

import attention
from benchmarks.compiled_speed import FAVOR, HYBRID, MAPS
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from training.io.config import UserError

HEADS, DIM, FEW = 8, 64, 1024
CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
COLUMNS = {
    "kind": "{kind}", "map": "{map}", "path": "{path}", "MiB": "{peak_mib:.0f}",
    "share of inputs and outputs": "{share:.2f}",
}  # fmt: skip


def resident_bytes(key: str) -> int:
    """Resident memory of this process, now (VmRSS) or at its peak (VmHWM)."""
    lines = (line.split() for line in STATUS.read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{key}:")


def grown_bytes(compute: Callable[[], torch.Tensor]) -> int:
    """How far the peak of resident memory rises by a computation, without its result."""
    before = resident_bytes("VmRSS")
    CLEAR.write_text("5")  # the peak is that from here on
    result = compute()
    return resident_bytes("VmHWM") - before - result.nbytes


@torch.no_grad()
def measure_one(name: str, causal: bool, length: int, path: str) -> int:
    """`grown_bytes` of attention by a map, in a process of its own."""
    torch.set_num_threads(1)
    os.environ["FOVEATE_NUMBA"] = "1" if path == "compiled" else "0"
    features = attention.feature_map(dim=DIM, **MAPS[name])  # type: ignore[arg-type]
    grown = 0
    for tokens in (min(FEW, length), length):
        x, y, v = torch.randn(3, 1, HEADS, tokens, DIM).mul_(DIM**-0.25)
        grown = grown_bytes(lambda x=x, y=y, v=v: features.attend(x, y, v, causal=causal))  # type: ignore[misc]
    return grown


def measure(arguments: Arguments) -> Rows:
    """Every map, bidirectional and causal, plain and compiled."""
    if not CLEAR.exists():
        raise UserError("benchmarks.attention_memory needs Linux's /proc/self/clear_refs")
    length = FEW if arguments.quick else arguments.length
    whole = 4 * HEADS * length * DIM * 4
    rows: Rows = []
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as processes:
        for kind in ("bidirectional", "causal"):
            for name in (FAVOR, HYBRID):
                for path in ("plain", "compiled"):
                    case = (name, kind == "causal", length, path)
                    grown = processes.submit(measure_one, *case).result()
                    row = {"kind": kind, "map": name, "path": path, "length": length}
                    rows.append(row | {"peak_mib": grown / 2**20, "share": grown / whole})
    return rows


def show(results: Rows) -> Lines:
    """A row for each case."""
    yield f"{results[0]['length']:,} tokens, peak beyond inputs and outputs"
    yield from figure.table(results, COLUMNS, 16, 22, 10, 8, 29)


main = figure.command(
    measure, show, None,
    figure.option("--length", type=int, default=65536, help="tokens (default 65,536)"),
)  # fmt: skip
