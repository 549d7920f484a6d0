"""Which bases an angular hybrid should have: errors at equal FLOPs.

    python -m experiments.hybrid_random_features.hybrid_bases [--out DIR] [--seed S] [--quick]

The paper's hybrid (hyperbolic and trig) against hybrids with a one-sided base (positive, or OPRF
with A fitted), whose own vectors may be simplex-coupled, and against single maps. Each map gets as
many vectors m as fit in one budget; hybrids have n = 8 vectors for the coefficient. Counted for a
token on one side, multiply-add = 2:

    2 d rows     products with random vectors; rows = m + n, or 2m + n where the bases do not share
    T            exponentials, sines and cosines
    F            outer products with the coefficient's features (hybrids, dv > 1)
    2 F dv       products with values; dv = 1 is a token score, where nothing forms F features and
                 F only counts the products T (n + 1)

Errors: of the kernel, root mean squared relative error at lengths |x| = |y| = r over all angles
alike, and at an angle of pi/2, where most pairs of random vectors are; of attention, relative to
the exact output (dv > 1) or to the exact token scores (dv = 1), median over draws, for random
directions of queries whose keys lie half at random and half near queries. The kernel's errors have
long tails at lengths from 1.5: differences of a fifth there are noise.

OPRF in a hybrid always has separate rows because its A scales them. With A below 0 it has a small
error at angle pi, where the hybrid with hyperbolic or positive features has none.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

import attention
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

N = 8
REFERENCE_M = 256
"""Vectors of FAVOR+ whose cost is the budget of all."""
SIZES = ((16, 64), (64, 64), (16, 1), (64, 1))
"""d and dv."""
LENGTHS = (0.5, 1.0, 1.5, 2.0)
ANGLES = 25
TOKENS = 128


class Map(NamedTuple):
    """A candidate: its construction and its cost."""

    name: str
    options: dict[str, Any]
    functions: int
    """T / m"""
    vectors: int
    """Rows of random vectors per feature count m: 2 where bases have separate rows."""


def _hybrid(first: str, projection: Any = "orthogonal", shared: bool = False) -> dict[str, Any]:
    return {
        "name": "angular_hybrid", "base": (first, "trig"), "shared_projections": shared,
        "num_lambda_features": N, "projection": projection, "lambda_projection": "orthogonal",
    }  # fmt: skip


def _single(name: str, projection: str = "orthogonal") -> dict[str, Any]:
    return {"name": name, "projection": projection}


SIMPLEX = ("simplex", "orthogonal")
MAPS = (
    Map("hyperbolic+trig, shared (paper)", _hybrid("hyperbolic", shared=True), 4, 1),
    Map("hyperbolic+trig, independent (paper)", _hybrid("hyperbolic"), 4, 2),
    Map("positive+trig, shared", _hybrid("positive", shared=True), 3, 1),
    Map("positive+trig, orthogonal", _hybrid("positive"), 3, 2),
    Map("positive+trig, simplex", _hybrid("positive", SIMPLEX), 3, 2),
    Map("oprf+trig, orthogonal", _hybrid("oprf"), 3, 2),
    Map("oprf+trig, simplex", _hybrid("oprf", SIMPLEX), 3, 2),
    Map("FAVOR+ (positive)", _single("positive"), 1, 1),
    Map("positive, simplex", _single("positive", "simplex"), 1, 1),
    Map("oprf", _single("oprf"), 1, 1),
    Map("oprf, simplex", _single("oprf", "simplex"), 1, 1),
    Map("trig", _single("trig"), 2, 1),
)


def cost(candidate: Map, m: int, d: int, dv: int) -> int:
    """FLOPs per token and side with m vectors per base."""
    hybrid = "base" in candidate.options
    features = candidate.functions * m
    rows = candidate.vectors * m + (N if hybrid else 0)
    outer = features * (N + 1) if hybrid else features
    formed = outer if hybrid and dv > 1 else 0
    return 2 * d * rows + features + formed + 2 * outer * dv


def vectors_within(candidate: Map, budget: int, d: int, dv: int) -> int:
    """The largest m whose cost is within the budget, at least 1."""
    base, slope = cost(candidate, 0, d, dv), cost(candidate, 1, d, dv) - cost(candidate, 0, d, dv)
    return max(1, (budget - base) // slope)


def _pairs(r: float, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x and y (angles, d) of length r, at angles from 0 to pi."""
    first, second = torch.linalg.qr(torch.randn(d, 2, generator=generator)).Q.T
    theta = torch.linspace(0, math.pi, ANGLES).unsqueeze(-1)
    return (r * first).expand(ANGLES, d), r * (theta.cos() * first + theta.sin() * second)


def _tokens(r: float, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: half of the keys at random, half near queries."""
    x, y, values, noise = (
        torch.randn(TOKENS, width, generator=generator) for width in (d, d, 64, d)
    )
    x, y = normalize(x, dim=-1), normalize(y, dim=-1)
    near = normalize(x + 0.5 * normalize(noise, dim=-1), dim=-1)
    chosen = torch.arange(TOKENS) % 2 == 0
    return r * x, r * torch.where(chosen.unsqueeze(-1), near, y), values


def errors_of(candidate: Map, d: int, dv: int, draws: int, seed: int) -> Rows:
    """One row per length; `draws` independent sets of vectors, stored as heads of one map."""
    budget = 2 * d * REFERENCE_M + REFERENCE_M + 2 * REFERENCE_M * dv
    m = vectors_within(candidate, budget, d, dv)
    options = dict(candidate.options)
    fm = attention.feature_map(options.pop("name"), d, m, heads=draws, seed=seed, **options)
    facts = {"map": candidate.name, "d": d, "dv": dv, "m": m, "features": fm.output_dim}
    facts |= {"flops": cost(candidate, m, d, dv), "budget": budget}
    rows: Rows = []
    for r in LENGTHS:
        generator = torch.Generator().manual_seed(seed + 1)
        queries, keys, values = _tokens(r, d, generator)
        x, y = _pairs(r, d, generator)
        heads = [u.expand(draws, *u.shape) for u in (queries, keys, values, x, y)]
        fm.fit(heads[0], heads[1])
        estimates = (fm.queries(heads[3]) * fm.keys(heads[4])).sum(-1).double()
        exact = attention.kernels.softmax(x.double(), y.double())
        squares = (estimates / exact - 1).square().mean(0)
        if dv > 1:
            out, target = fm.attend(*heads[:3]), attention.ExactSoftmax(d).attend(*heads[:3])
        else:
            out = fm.token_scores(*heads[:2])
            target = attention.softmax_token_scores(queries, keys).expand_as(out)
        errors = (out - target).flatten(1).norm(dim=-1) / target.flatten(1).norm(dim=-1)
        row = {**facts, "length": r, "relative_error_by_angle": squares.sqrt().tolist()}
        row["relative_error"] = float(squares.mean().sqrt())
        row["relative_error_right_angle"] = float(squares[ANGLES // 2].sqrt())
        rows.append({**row, "attention_error_median": float(errors.median())})
    return rows


def draw(results: Rows, r: float = 1.5) -> Any:
    """Relative errors by angle at one length, a panel for each d and dv."""
    angles = torch.linspace(0, 180, ANGLES).tolist()
    rows = [
        {**row, "angle, degrees": angles, "sizes": f"d={row['d']}, dv={row['dv']}"}
        for row in figure.select(results, length=r)
    ]
    key = "relative_error_by_angle"
    return figure.plot(rows, "angle, degrees", key, "map", "sizes", ("linear", "log"), marker="")


@torch.no_grad()
def measure(arguments: Arguments) -> Rows:
    """One entry per size, map and length."""
    draws = 8 if arguments.quick else 150
    return [
        row
        for d, dv in SIZES
        for candidate in MAPS
        for row in errors_of(candidate, d, dv, draws, arguments.seed)
    ]


def show(results: Rows) -> Lines:
    """Errors by size and length; the least of each is starred."""
    rows = []
    for row in sorted(results, key=lambda r: (-r["dv"], r["d"], r["length"])):
        alike = figure.select(results, d=row["d"], dv=row["dv"], length=row["length"])
        cells = {
            key: f"{row[key]:.3g}{'*' if row[key] == min(figure.column(alike, key)) else ' '}"
            for key in ("relative_error", "attention_error_median")
        }
        rows.append({**row, **cells})
    columns = {"d": "{d}", "dv": "{dv}", "length": "{length}", "map": "{map}", "m": "{m}",
               "F": "{features}", "FLOPs": "{flops:,}", "error ": "{relative_error}",
               "at 90": "{relative_error_right_angle:.3g}",
               "attention ": "{attention_error_median}"}  # fmt: skip
    yield from figure.table(rows, columns, 3, 4, 7, -37, 5, 6, 8, 10, 10, 11)


main = figure.command(measure, show, draw, plotted=("relative_error_by_angle",))
