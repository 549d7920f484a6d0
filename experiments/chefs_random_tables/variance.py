"""Variance of the maps over four input regimes (Chefs' Random Tables, section 5.1 and Figure 2).

    python -m experiments.chefs_random_tables.variance [--out DIR] [--seed S] [--quick]

Closed-form log-variances of one feature's Gaussian kernel estimate, d = 64, for pairs x, y from

    normal     N(0, s^2 I) both
    sphere     uniform on a sphere of radius s, both
    heterogen  N(0, s^2 I) and N(s 1, s^2 I)
    digits     random 8x8 handwritten digits times s: scikit-learn's, pixels in [0, 1], where the
               paper has MNIST resized to 8x8

for s in [0.1, 1]. A, lam and p are the optimum of each pair; the plus maps shift by the smallest
value of each coordinate in the sample, so their error depends on its size, which the paper does not
give. The paper prints no table: its claims at s = 1 are ratios of variances, which are shown beside
ours. Ratios of mean variances would be those of a few pairs, so logarithms are averaged."""

from typing import Any

import torch
from torch import Tensor

from attention import theory
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

DIM = 64
SIGNED = ("trig", "gerf", "poisson", "geometric")
POSITIVE = ("positive", "oprf", "poisson_plus", "geometric_plus")
PLAIN = ("trig", "poisson", "geometric", "positive", "oprf")
"""Maps whose variance has no further parameter."""
REGIMES = ("normal", "sphere", "heterogen", "digits")
CLAIMS = {
    ("normal", "gerf", "trig"): 80,
    ("heterogen", "gerf", "trig"): 125,
    ("digits", "gerf", "trig"): 10,
    ("normal", "oprf", "positive"): 75,
    ("normal", "geometric_plus", "positive"): 75,
    ("heterogen", "oprf", "positive"): 125,
    ("heterogen", "geometric_plus", "positive"): 125,
    ("digits", "oprf", "positive"): 7,
    ("digits", "geometric_plus", "positive"): 7,
}
"""Published: the logarithm of (variance of the third / variance of the second) exceeds this."""


def pairs(regime: str, scale: float, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """x and y of `count` pairs, (count, 64) float64."""
    if regime == "digits":
        from sklearn.datasets import load_digits

        images = torch.from_numpy(load_digits().data) / 16
        chosen = torch.randint(len(images), (2, count), generator=generator)
        x, y = scale * images[chosen]
        return x, y
    x, y = torch.randn(2, count, DIM, generator=generator, dtype=torch.float64)
    if regime == "sphere":
        x, y = (u / torch.linalg.vector_norm(u, dim=-1, keepdim=True) for u in (x, y))
    return scale * x, scale * (y + 1 if regime == "heterogen" else y)


def log_variances(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Log of one projection's variance for each map, (count,); the Gaussian kernel."""
    shift = torch.minimum(x.amin(0), y.amin(0))

    def log_variance(name: str, **options: Any) -> Tensor:
        return theory.mse(name, x, y, 1, kernel="gaussian", **options).log()

    return {
        "gerf": torch.minimum(log_variance("gerf", s=1), log_variance("gerf", s=-1)),
        **{name: log_variance(name) for name in PLAIN},
        **{name: log_variance(name, shift=shift) for name in ("poisson_plus", "geometric_plus")},
    }


def measure(arguments: Arguments) -> Rows:
    """One entry per regime, scale and map: mean and standard deviation of the log-variance."""
    count, steps = (20, 2) if arguments.quick else (1000, 10)
    generator = torch.Generator().manual_seed(arguments.seed)
    results = []
    for regime in REGIMES:
        for scale in (1 - 0.9 * i / (steps - 1) for i in reversed(range(steps))):
            x, y = pairs(regime, scale, count, generator)
            distinct = (x != y).any(-1)
            for name, values in log_variances(x[distinct], y[distinct]).items():
                found = {"mean": float(values.mean()), "std": float(values.std())}
                results.append({"regime": regime, "scale": scale, "map": name, **found})
    return results


def show(results: Rows) -> Lines:
    """Mean log-variances at s = 1, then the published ratios beside ours."""
    at_one = {(r["regime"], r["map"]): r["mean"] for r in results if r["scale"] == 1}
    yield "mean log-variance at s = 1"
    rows = [(m, *(f"{at_one[r, m]:.1f}" for r in REGIMES)) for m in SIGNED + POSITIVE]
    yield from figure.lines(("map", *REGIMES), rows, 16, 12)
    yield ""
    claims = []
    for (regime, better, worse), claim in CLAIMS.items():
        gain = at_one[regime, worse] - at_one[regime, better]
        claims.append((f"{regime}: {worse} / {better}", f"> {claim}", f"{gain:.1f}"))
    yield from figure.lines(("log of the variance ratio", "published", "ours"), claims, 44, 10, 8)


def draw(results: Rows) -> Any:
    """Log-variance against scale (Figure 2): a panel for each regime."""
    return figure.plot(results, "scale", "mean", "map", "regime", error="std")


main = figure.command(measure, show, draw)
