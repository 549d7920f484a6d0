"""Variance of optimal positive features over that of FAVOR+'s (CRT paper, Figure 1, right).

    python -m experiments.chefs_random_tables.oprf_gain [--out DIR] [--seed S] [--quick]

Chefs' Random Tables, Figure 1: mu, the logarithm of the ratio of the variances of OPRF and of
positive features, against |x + y|^2, a curve for each d; both kernels have the same ratio. In
brackets, at d = 2, where |x + y|^2 is small enough to measure it: the ratio from drawn features.

The paper prints one number: mu is below -60 at d = 64 and |x + y|^2 = 100.
"""

import math
from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from experiments import figure
from experiments.figure import Arguments, Lines, Row, Rows

DIMS = (2, 4, 16, 64, 256)
SHOWN = (0.5, 1.0, 10.0, 50.0, 100.0)
MEASURED = (0.5, 1.0)


def gains(squares: Tensor, dim: int) -> list[float]:
    """mu at each |x + y|^2."""
    x = torch.zeros(len(squares), dim, dtype=torch.float64)
    x[:, 0] = squares.sqrt() / 2
    return (theory.mse("oprf", x, x, 1) / theory.mse("positive", x, x, 1)).log().tolist()


def drawn_gain(square: float, dim: int, draws: int, seed: int) -> float:
    """mu at |x + y|^2 from `draws` features of each map."""
    x = torch.zeros(1, dim, dtype=torch.float64)
    x[0, 0] = math.sqrt(square) / 2
    variances = []
    A = float(theory.oprf_parameter(square, dim))
    maps: dict[str, dict[str, Any]] = {"oprf": {"A": A}, "positive": {}}
    for name, options in maps.items():
        fm = attention.feature_map(
            name, dim, draws, projection="iid", dtype=torch.float64, seed=seed, **options
        )
        terms = draws * fm.queries(x) * fm.keys(x)
        variances.append(float((terms - attention.kernels.softmax(x, x)).square().mean()))
    return math.log(variances[0] / variances[1])


def measure(arguments: Arguments) -> Rows:
    """One entry per dimension."""
    points, draws = (21, 20_000) if arguments.quick else (201, 1_000_000)
    square = torch.linspace(0.1, 100, points, dtype=torch.float64)
    shown = torch.tensor(SHOWN, dtype=torch.float64)
    results: Rows = []
    for dim in DIMS:
        entry: Row = {"dim": dim, "square": square.tolist(), "mu": gains(square, dim)}
        entry["shown"] = gains(shown, dim)
        if dim == DIMS[0]:
            entry["drawn"] = [drawn_gain(v2, dim, draws, arguments.seed) for v2 in MEASURED]
        results.append(entry)
    return results


def show(results: Rows) -> Lines:
    """mu by dimension, in brackets that of drawn features."""
    yield "mu = log(variance of OPRF / of positive features), in brackets of drawn features"
    rows = []
    for entry in results:
        drawn = [f" ({mu:.2f})" for mu in entry.get("drawn", [])] + [""] * len(SHOWN)
        cells = (f"{mu:.2f}{d}" for mu, d in zip(entry["shown"], drawn, strict=False))
        rows.append((entry["dim"], *cells))
    yield from figure.lines(["d", *(f"|x+y|^2 = {v2:g}" for v2 in SHOWN)], rows, 5, 18)


def draw(results: Rows) -> Any:
    """mu against |x + y|^2 (Figure 1, right)."""
    return figure.plot(results, "square", "mu", "dim", marker="")


main = figure.command(measure, show, draw, plotted=("square", "mu"))
