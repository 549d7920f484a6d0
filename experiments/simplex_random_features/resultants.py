"""Lengths of sums of two random vectors, by coupling (simplex paper, Figure 5).

    python -m experiments.simplex_random_features.resultants [--out DIR] [--seed S] [--quick]

Simplex Random Features, Figure 5: the densities of w = |omega_i + omega_j| of Lemmas 4.1 and 4.2.
Conformity, and with it the error of positive features, is the mean of a growing function of w. The
paper does not give its dimension; here d = 6, that of its Figure 4, and d = 64, that of its Figure
6. Beside the closed forms: the lengths of drawn rows, and the conformity at |x + y| = 1 from the
density and from its own closed form. The paper claims that coupling makes long sums less likely.
"""

import math
from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from experiments.simplex_random_features.couplings import growth

COUPLINGS = ("iid", "orthogonal", "simplex")
DIMS = (6, 64)
POINTS = 4001


def grid(dim: int) -> Tensor:
    """Lengths from 0 to where hardly any sum is longer."""
    return torch.linspace(0, 2 * math.sqrt(dim) + 9, POINTS, dtype=torch.float64)


def drawn_lengths(coupling: str, dim: int, pairs: int, generator: torch.Generator) -> Tensor:
    """|omega_i + omega_j| of disjoint pairs of rows, dim/2 a block: (pairs,)."""
    blocks = -(-2 * pairs // dim)
    rows = attention.projection(coupling, blocks * dim, dim, generator, dtype=torch.float64)
    sums = rows.view(-1, 2, dim).sum(1)
    return torch.linalg.vector_norm(sums, dim=-1)[:pairs]


def measure(arguments: Arguments) -> Rows:
    """One entry per dimension and coupling. A sum is long above the 95th percentile of iid ones."""
    pairs = 100 if arguments.quick else 5_000
    generator = torch.Generator().manual_seed(arguments.seed)
    results = []
    for dim in DIMS:
        w = grid(dim)
        step = float(w[1])
        long = 0.0
        for coupling in COUPLINGS:
            density = theory.resultant_density(coupling, w, dim)
            below = torch.cumulative_trapezoid(density, dx=step)
            if coupling == "iid":
                long = float(w[1:][below >= 0.95][0])
            drawn = drawn_lengths(coupling, dim, pairs, generator)
            grown = (growth(w.square(), dim) * density).sum() * step
            results.append(
                {
                    "dim": dim,
                    "coupling": coupling,
                    "w": w.tolist(),
                    "density": density.tolist(),
                    "drawn": drawn[:1000].tolist(),
                    "mean": float((w * density).sum() * step),
                    "mean_drawn": float(drawn.mean()),
                    "long": long,
                    "share_long": float(1 - below[w[1:] <= long][-1]),
                    "share_long_drawn": float((drawn > long).double().mean()),
                    "conformity_of_density": float(grown),
                    "conformity": float(theory.rf_conformity(coupling, 1.0, dim)),
                }
            )
    return results


def draw(results: Rows) -> Any:
    """The densities, a panel for each dimension (Figure 5)."""
    return figure.plot(results, "w", "density", "coupling", "dim", marker="")


def show(results: Rows) -> Lines:
    """Lengths, shares and conformities by dimension and coupling."""
    yield "w = |omega_i + omega_j|, in brackets of drawn pairs"
    columns = {"d": "{dim}", "coupling": "{coupling}", "mean w": "{mean:.3f} ({mean_drawn:.3f})",
               "share long": "{share_long:.4f} ({share_long_drawn:.4f})",
               "conformity": "{conformity:.4f}"}  # fmt: skip
    yield from figure.table(results, columns, 4, -12, 18, 20, 12)
    levels = ", ".join(f"{r['long']:.2f} (d = {r['dim']})" for r in results[:: len(COUPLINGS)])
    yield f"long: above {levels}, the 95th percentile of iid rows; conformity at |x + y| = 1"


main = figure.command(measure, show, draw, plotted=("w", "density", "drawn"))
