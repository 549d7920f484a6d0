"""Gaussian kernel of rows whose mean is far from zero: errors of the maps, without and with
centring.

    python -m experiments.feature_maps.far_from_zero [--out DIR] [--seed S] [--quick]

200 rows in d = 16 dimensions, normal with variance 1/16 a coordinate, so that two lie at a distance
of about 1.4 bandwidths; their mean is moved from 0 to lengths of 1 to 50 bandwidths. The kernel
does not change. Relative Frobenius errors of the Gram matrix, F = 256 features, orthogonal random
vectors, parameters set by `fit`, medians over draws."""

from typing import Any

import torch
from torch import Tensor

import attention
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

ROWS, DIM, WIDTH = 200, 16, 256
MAPS = ("trig", "hyperbolic", "positive", "oprf", "gerf", "poisson", "poisson_plus")
LENGTHS = (0.0, 1.0, 2.0, 4.0, 8.0, 50.0)
"""Lengths of the mean, in bandwidths."""


def gram_error(name: str, rows: Tensor, seed: int) -> float:
    """Relative Frobenius error of one draw's Gram matrix; rows (n, d) in bandwidths."""
    functions = attention.feature_map(name, DIM, 1, kernel="gaussian").output_dim
    fm = attention.feature_map(
        name, DIM, WIDTH // functions, kernel="gaussian", seed=seed, dtype=torch.float64
    ).fit(rows, rows)
    exact = attention.kernels.gaussian(rows.unsqueeze(-2), rows)
    return float((fm.queries(rows) @ fm.keys(rows).mT - exact).norm() / exact.norm())


def measure(arguments: Arguments) -> Rows:
    """One entry per length, map and treatment (moved or centred): the median error."""
    draws, seed = 2 if arguments.quick else 21, arguments.seed
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(ROWS, DIM, generator=generator, dtype=torch.float64) * DIM**-0.5
    direction = torch.nn.functional.normalize(torch.ones(DIM, dtype=torch.float64), dim=0)
    results: Rows = []
    for length in LENGTHS:
        moved = rows + length * direction
        for name in MAPS:
            for way, tokens in (("as it is", moved), ("centred", moved - moved.mean(0))):
                errors = [gram_error(name, tokens, seed + 1 + i) for i in range(draws)]
                median = float(torch.tensor(errors).median())
                results.append({"length": length, "map": name, "way": way, "error": median})
    return results


def show(results: Rows) -> Lines:
    """Median errors by map, without and with centring, and length."""
    rows = [
        (
            f"{name}, {way}",
            *(f"{r['error']:.3g}" for r in figure.select(results, map=name, way=way)),
        )
        for name in MAPS
        for way in ("as it is", "centred")
    ]
    head = ("relative error of the Gram matrix", *(f"{n:g}" for n in LENGTHS))
    yield from figure.lines(head, rows, 36, 10)


def draw(results: Rows) -> Any:
    """Error against the mean's length, without and with centring."""
    return figure.plot(results, "length", "error", "map", "way", ("symlog", "log"))


main = figure.command(measure, show, draw)
