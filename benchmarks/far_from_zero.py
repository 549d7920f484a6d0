"""Gaussian kernel of rows whose mean is far from zero: errors of the maps, as they are and centred.

    python -m benchmarks.far_from_zero [--out DIR] [--seed S] [--quick]

200 rows in d = 16 dimensions, normal with variance 1/16 a coordinate, so that two lie at a distance
of about 1.4 bandwidths; their mean is moved from 0 to lengths of 1 to 50 bandwidths. The kernel
stays as it is. Relative Frobenius errors of the Gram matrix, F = 256 features, orthogonal random
vectors, parameters set by `fit`, medians over draws.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import attention
from benchmarks import report
from training.io.config import exit_status

ROWS, DIM, WIDTH = 200, 16, 256
MAPS = ("trig", "hyperbolic", "positive", "oprf", "gerf", "poisson", "poisson_plus")
LENGTHS = (0.0, 1.0, 2.0, 4.0, 8.0, 50.0)
"""Of the mean, in bandwidths."""


def gram_error(name: str, rows: Tensor, seed: int) -> float:
    """Relative Frobenius error of one draw's Gram matrix; rows (n, d) in bandwidths."""
    functions = attention.feature_map(name, DIM, 1, kernel="gaussian").output_dim
    fm = attention.feature_map(
        name, DIM, WIDTH // functions, kernel="gaussian", seed=seed, dtype=torch.float64
    )
    fm.fit(rows, rows)
    exact = attention.kernels.gaussian(rows.unsqueeze(-2), rows)
    estimate = fm.queries(rows) @ fm.keys(rows).mT
    return float((estimate - exact).norm() / exact.norm())


def measure(draws: int, seed: int) -> list[dict[str, Any]]:
    """One entry a length, a map and a way, moved or centred: the median error."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(ROWS, DIM, generator=generator, dtype=torch.float64) * DIM**-0.5
    direction = torch.nn.functional.normalize(torch.ones(DIM, dtype=torch.float64), dim=0)
    results = []
    for length in LENGTHS:
        moved = rows + length * direction
        for name in MAPS:
            for way, tokens in (("as it is", moved), ("centred", moved - moved.mean(0))):
                errors = [gram_error(name, tokens, seed + 1 + i) for i in range(draws)]
                median = float(torch.tensor(errors).median())
                results.append({"length": length, "map": name, "way": way, "error": median})
    return results


def draw(results: list[dict[str, Any]]) -> Any:
    """Error against the mean's length, maps as they are."""
    figure, axes = report.new_figure(1)
    for name in MAPS:
        curve = [r for r in results if (r["map"], r["way"]) == (name, "as it is")]
        axes[0, 0].plot([r["length"] for r in curve], [r["error"] for r in curve], label=name)
    axes[0, 0].set(xlabel="length of the mean, bandwidths", ylabel="relative error")
    axes[0, 0].set(xscale="symlog", yscale="log")
    axes[0, 0].legend(fontsize=7)
    return figure


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = report.make_parser("benchmarks.far_from_zero", __doc__).parse_args(argv)
    results = measure(2 if arguments.quick else 21, arguments.seed)
    errors = {(r["map"], r["way"], r["length"]): r["error"] for r in results}
    print(f"{'relative error of the Gram matrix':<36}" + "".join(f"{n:>10g}" for n in LENGTHS))
    for name in MAPS:
        for way in ("as it is", "centred"):
            cells = "".join(f"{errors[name, way, length]:>10.3g}" for length in LENGTHS)
            print(f"{f'{name}, {way}':<36}{cells}")
    report.save(arguments.out, "far_from_zero", arguments.seed, results, draw(results))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: exit status 0, or 2 for a mistake in the arguments."""
    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    sys.exit(main())
