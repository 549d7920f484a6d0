"""Time of `attention.RandomFeatures.transform` beside scikit-learn's `RBFSampler`.

    python -m benchmarks.sklearn_speed [--out DIR]

Both have the same number of columns and one thread. Their calls take turns; times are medians of
CPU time. Times are in milliseconds.
"""

import statistics
import time
from typing import Any

import numpy as np
import torch

import attention
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

SIZES = (
    *((1, 10, 100), (100, 10, 100), (1000, 20, 100), (10000, 20, 100)),
    *((50000, 20, 50), (10000, 100, 500), (2000, 784, 1000), (100, 2000, 2000)),
)
"""Rows, columns of X, and columns of the result."""
COLUMNS = {
    "rows": "{rows}", "d": "{dim}", "columns": "{columns}", "dtype": "{dtype}",
    "RBFSampler": "{rbf_ms:.3f}", "RandomFeatures": "{ours_ms:.3f}", "ratio": "{ratio:.2f}",
}  # fmt: skip


def measure(arguments: Arguments) -> Rows:
    """Each size in both precisions."""
    from sklearn.kernel_approximation import RBFSampler

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    results: Rows = []
    for rows, dim, columns in SIZES:
        for dtype in (np.float64, np.float32):
            X = rng.standard_normal((rows, dim)).astype(dtype)
            options: dict[str, Any] = {"n_components": columns, "gamma": 0.1, "random_state": 0}
            models = (RBFSampler(**options).fit(X), attention.RandomFeatures(**options).fit(X))
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(arguments.calls):
                for model, spent in zip(models, times, strict=True):
                    start = time.process_time()
                    model.transform(X)
                    spent.append(1000 * (time.process_time() - start))
            rbf, ours = map(statistics.median, times)
            row = {"rows": rows, "dim": dim, "columns": columns, "dtype": np.dtype(dtype).name}
            results.append({**row, "rbf_ms": rbf, "ours_ms": ours, "ratio": ours / rbf})
    return results


def show(results: Rows) -> Lines:
    """A row for each size and precision."""
    yield from figure.table(results, COLUMNS, 6, 5, 8, 8, 11, 15, 6)


main = figure.command(
    measure, show, None,
    figure.option("--calls", type=int, default=15, help="timed calls (default 15)"),
)  # fmt: skip
