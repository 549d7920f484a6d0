"""Nonparametric classification on UCI sets with random features (Simplex Random Features, Fig. 8,
Tables 2 and 3; Chefs' Random Tables, Table 1), ours beside the published figures.

    python -m experiments.simplex_random_features.classification

The simplex paper's preprocessing and bandwidths are those of its published code, except for the
share of training rows (experiments/data/uci.py), so its tables should come out within their errors.
The printed errors are what about 10,000 draws (Table 2) and 4,000 draws (Table 3) give here, not
the 500 that the paper names. The Chefs' Random Tables give no errors, and their encoding,
validation rows, grid of bandwidths and the inputs that parameters are fitted to are unknown: that
table compares the maps under one stated protocol."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import attention
from experiments import figure
from experiments.data.uci import Split, load, split
from experiments.figure import Arguments, Lines, Row
from experiments.simplex_random_features import classification_published as published
from experiments.simplex_random_features.kernel_regression import accuracies, exact_accuracy
from training.analysis.arguments import positive
from training.analysis.evaluator import standard_error
from training.io.config import UserError

AVAILABLE = ("abalone", "banknote", "car", "cmc", "chess")
"""Run by default; yeast, nursery and wifi by name."""
FIGURE_8 = ("iid", "orthogonal", "simplex", "simplex_plus")
MULTIPLES = (1, 2, 4, 10)
"""m / d."""
FIGURE_8_DRAWS = 500
"""Largest number of draws where m > d, whatever the tables use: there the curves are smooth."""
WIDTH = 2048
"""Features made at a time, of as many draws as fit."""
CRT_M = 128
CRT_GRID = tuple(float(v) for v in np.geomspace(0.05, 2.0, 12))
CRT_VALIDATION_DRAWS = 3
WITHIN_Z = 3.0
"""Combined standard errors that count as agreement: 1 comparison in 370 misses it by chance."""

NOTES = (
    "Simplex paper: 90 % of the rows train and the last 5 % test. Its published code trains on "
    "95 %, which misses the printed figures of abalone, cmc and wifi; that they were made with "
    "90 % is inferred from the figures, and fits every set.",
    "Chefs' Random Tables: 90 % of the rows train, half of the others choose sigma and half test, "
    "encoded as for the simplex paper; the paper's own protocol is unknown.",
)

Rows = tuple[Tensor, Tensor, Tensor, Tensor]
"""x_train, y_train, x_test, y_test."""


def rows(parts: Split, sigma: float, dim: int | None = None) -> Rows:
    """The split as float64 tensors times sigma, padded with zero columns to `dim`."""
    inputs = [torch.from_numpy(x) * sigma for x in (parts.x_train, parts.x_test)]
    if dim is not None:
        inputs = [torch.nn.functional.pad(x, (0, dim - x.shape[1])) for x in inputs]
    labels = [torch.from_numpy(y) for y in (parts.y_train, parts.y_test)]
    return inputs[0], labels[0], inputs[1], labels[1]


def positive_features(
    data: Rows, classes: int, projection: str, blocks: int, repeats: int, seed: int
) -> NDArray[np.float64]:
    """Accuracy of each of `repeats` draws of m = blocks * d positive features, (repeats,).

    Blocks of d projections are independent in every coupling, so one call draws for many repeats.
    """
    generator = torch.Generator().manual_seed(seed)
    d = data[0].shape[1]
    batch = max(1, WIDTH // (blocks * d))
    parts = []
    for start in range(0, repeats, batch):
        draws = min(batch, repeats - start)
        m = draws * blocks * d
        omega = attention.projection(projection, m, d, generator, torch.float64)
        fm = attention.feature_map("positive", d, m, kernel="gaussian", projection=omega)
        parts.append(accuracies(fm, draws, *data, classes))
    return np.concatenate(parts)


def summary(sample: NDArray[np.float64]) -> Row:
    """Mean and its standard error; None for a single draw."""
    return {"accuracy": float(sample.mean()), "error": standard_error(sample)}


def compare(ours: Row, printed: tuple[float, float]) -> Row:
    """Ours beside a published mean and error, and the difference in combined errors."""
    z = (ours["accuracy"] - printed[0]) / float(np.hypot(ours["error"] or 0.0, printed[1]))
    both = {"published": printed[0], "published_error": printed[1]}
    return {**ours, **both, "z": z, "within": abs(z) <= WITHIN_Z}


def simplex_tables(
    parts: Split, classes: int, name: str, repeats: int, seed: int, multiples: Sequence[int]
) -> Row:
    """Fig. 8 and Tables 2 and 3 for one data set, with the paper's bandwidth."""
    sigma = published.SIGMA[name]
    data = rows(parts, sigma)
    d = data[0].shape[1]
    padded = rows(parts, sigma, 2 ** (d - 1).bit_length())
    figure_8: dict[str, dict[str, Row]] = {coupling: {} for coupling in FIGURE_8}
    for coupling, by_multiple in figure_8.items():
        for k in multiples:
            draws = repeats if k == 1 else min(repeats, FIGURE_8_DRAWS)
            sample = positive_features(data, classes, coupling, k, draws, seed)
            by_multiple[str(k)] = summary(sample)
    table_3 = {}
    for coupling, printed in published.TABLE_3[name].items():
        sample = positive_features(padded, classes, coupling, 1, repeats, seed + 1)
        table_3[coupling] = compare(summary(sample), printed)
    table_2 = {
        coupling: compare(figure_8[coupling]["1"], printed)
        for coupling, printed in published.TABLE_2[name].items()
    }
    v = torch.cat([torch.cdist(-x, data[0]).mean(1) for x in data[2].split(64)]).mean()
    facts = {"d": d, "train": len(data[0]), "test": len(data[2]), "sigma": sigma}
    facts |= {"mean_v": float(v), "published_mean_v": published.MEAN_V[name]}
    facts["exact"] = exact_accuracy(*data, classes)
    return {**facts, "figure_8": figure_8, "table_2": table_2, "table_3": table_3}


def crt_accuracies(
    name: str, data: Rows, classes: int, draws: int, seed: int
) -> NDArray[np.float64]:
    """Accuracy of each of several draws of one map, its parameters fitted to the inputs."""
    x_train, _, x_test, _ = data
    fm = attention.feature_map(
        name, x_train.shape[1], CRT_M, kernel="gaussian", projection="iid", dtype=torch.float64
    )
    fm.fit(x_test, x_train)
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for _ in range(draws):
        fm.redraw(generator)
        parts.append(accuracies(fm, 1, *data, classes))
    return np.concatenate(parts)


def crt_table(
    parts: Split, classes: int, name: str, draws: int, seed: int, grid: Sequence[float]
) -> Row:
    """Table 1 for one data set: 90 % train; validation picks sigma, the other half tests."""
    half = len(parts.y_test) // 2
    validation = replace(parts, x_test=parts.x_test[:half], y_test=parts.y_test[:half])
    test = replace(parts, x_test=parts.x_test[half:], y_test=parts.y_test[half:])
    results: Row = {}
    for method, printed in published.CRT_TABLE_1[name].items():
        if method in attention.available():
            tried = (
                crt_accuracies(method, rows(validation, s), classes, CRT_VALIDATION_DRAWS, seed)
                for s in grid
            )
            sigma = grid[int(np.argmax([sample.mean() for sample in tried]))]
            sample = crt_accuracies(method, rows(test, sigma), classes, draws, seed + 1)
            results[method] = {**summary(sample), "sigma": sigma, "published": printed}
    return results


def _of_set(name: str, result: Row) -> Lines:
    """One data set's figures as text."""
    yield (
        f"\n{name}: d {result['d']}, {result['train']} train, {result['test']} test, "
        f"sigma {result['sigma']:.4f}, mean v {result['mean_v']:.2f} "
        f"(published {result['published_mean_v']}), exact kernel {result['exact']:.4f}"
    )
    yield f"  {'':28} {'ours':>17} {'published':>17} {'z':>6}"
    for table, title in (("table_2", "Table 2, m = d"), ("table_3", "Table 3, padded")):
        for method, row in result[table].items():
            yield (
                f"  {title:15} {method:12} {_mean(row, 4):>17} "
                f"{row['published']:.4f} +- {row['published_error']:.4f} {row['z']:6.1f} "
                f"{'within' if row['within'] else 'OUTSIDE'}"
            )
    for coupling, by_multiple in result["figure_8"].items():
        cells = "  ".join(f"{k}d {_mean(row, 4)}" for k, row in by_multiple.items())
        yield f"  Fig. 8          {coupling:12} {cells}"
    for method, row in result["crt_table_1"].items():
        yield (
            f"  CRT Table 1     {method:14} {_mean(row, 3)} "
            f"  published {row['published']:.3f} (its preprocessing is unknown)"
        )


def _mean(row: Row, decimals: int) -> str:
    mean, error = f"{row['accuracy']:.{decimals}f}", row["error"]
    return mean if error is None else f"{mean} +- {error:.{decimals}f}"


def draw(facts: Row) -> Any:
    """Fig. 8: accuracy against m / d, shaded by one standard error, a panel for each set."""
    rows = [
        {"set": name, "coupling": coupling, "m / d": int(k), **row}
        for name, result in facts["sets"].items()
        for coupling, by_multiple in result["figure_8"].items()
        for k, row in by_multiple.items()
    ]
    return figure.plot(rows, "m / d", "accuracy", "coupling", "set", error="error")


def sets_of(names: Sequence[str], quick: bool) -> Sequence[str]:
    """The named data sets or the default ones. Raises UserError for an unknown name."""
    unknown = sorted(set(names) - set(published.SIGMA))
    if unknown:
        known = ", ".join(sorted(published.SIGMA))
        raise UserError(f"set must be one of {known}, got {unknown[0]!r}")
    return names or (("banknote", "cmc") if quick else AVAILABLE)


def measure(arguments: Arguments) -> Row:
    """Return the figures of each set, and the number of draws behind them."""
    quick, seed = arguments.quick, arguments.seed
    repeats = arguments.repeats or (20 if quick else 500)
    crt_repeats = arguments.crt_repeats or (5 if quick else 50)
    results = {}
    for name in sets_of(arguments.sets, quick):
        print(f"{name} ...", file=sys.stderr, flush=True)
        data = load(name, arguments.data)
        classes = len(data.classes)
        multiples = MULTIPLES[:2] if quick else MULTIPLES
        result = simplex_tables(split(data), classes, name, repeats, seed, multiples)
        grid = CRT_GRID[::3] if quick else CRT_GRID
        parts = split(data, test_share=0.1)
        result["crt_table_1"] = crt_table(parts, classes, name, crt_repeats, seed, grid)
        results[name] = result
    facts = {"repeats": repeats, "crt_repeats": crt_repeats, "sigma_grid": CRT_GRID}
    return {**facts, "notes": NOTES, "sets": results}


def show(facts: Row) -> Lines:
    """The figures of each set, and how many of Tables 2 and 3 agree with the paper."""
    for name, result in facts["sets"].items():
        yield from _of_set(name, result)
    rows = [
        row
        for result in facts["sets"].values()
        for row in (*result["table_2"].values(), *result["table_3"].values())
    ]
    yield (
        f"\nTables 2 and 3: {sum(row['within'] for row in rows)} of {len(rows)} figures within "
        f"{WITHIN_Z:g} combined standard errors, {facts['repeats']} draws"
    )
    yield from facts["notes"]


SETS = figure.option(
    "sets", nargs="*", metavar="set", help=f"default: {' '.join(AVAILABLE)}; also: "
    f"{' '.join(sorted(set(published.SIGMA) - set(AVAILABLE)))}",
)  # fmt: skip
DATA = figure.option("--data", metavar="DIR", help="local data folder (default: FOVEATE_DATA)")
DRAWS = (
    figure.option("--repeats", type=positive, help="draws per figure (default 500, quick 20)"),
    figure.option(
        "--crt-repeats", type=positive, help="draws of CRT Table 1 (default 50, quick 5)"
    ),
)


main = figure.command(measure, show, draw, SETS, DATA, *DRAWS)
