"""Pointwise estimates of the softmax kernel over angle and length (HRF paper, Figures 2 and 5).

    python -m experiments.hybrid_random_features.pointwise [--out DIR] [--seed S] [--quick]

Hybrid Random Features, section 4.1 and appendix G: x and y of the same length r in 64 dimensions,
10,000 estimates at each angle; 5th and 95th percentile, and relative error sqrt(MSE) / kernel. Trig
and FAVOR+ (hyperbolic) have m = 128. Hybrids have n = 8 and the largest m whose features take no
more multiplications by the paper's count (section L, `theory.hybrid_multiplications`). Rows are
independent, as the closed forms beside the measured errors need.

The paper prints curves. Its claim is that the angular hybrid has the smallest maximal relative
error, and that the Gaussian hybrid is similar.
"""

import math
from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

DIM = 64
LENGTHS = (1.0, 1.25, 1.5)
BASE_M = 128
N = 8
DRAWS_AT_ONCE = 50


def equal_cost_m(base_m: int, n: int, dim: int, coefficient_functions: int = 1) -> int:
    """The largest m of a hybrid whose features take no more multiplications than trig's base_m."""
    count, functions = theory.hybrid_multiplications, (coefficient_functions,)
    m = 1
    while count(m + 1, n, dim, lambda_functions=functions) <= 2 * base_m * dim:
        m += 1
    return m


def settings(radius: float) -> dict[str, dict[str, Any]]:
    """Maps by label, as arguments of `attention.feature_map` and `theory.mse`."""
    m = equal_cost_m(BASE_M, N, DIM)
    angular = {"name": "angular_hybrid", "num_features": m, "num_lambda_features": N}
    gaussian_m = equal_cost_m(BASE_M, N, DIM, coefficient_functions=2)
    return {
        "trig": {"name": "trig", "num_features": BASE_M},
        "FAVOR+ (hyperbolic)": {"name": "hyperbolic", "num_features": BASE_M},
        "angular hybrid": {**angular, "shared_projections": False},
        "angular hybrid, shared": angular,
        "Gaussian hybrid, shared": {
            "name": "gaussian_hybrid", "num_features": gaussian_m, "num_lambda_features": N,
            "lambda_sigma": 1.0, "radius": radius,
        },
    }  # fmt: skip


def pair(radius: float, angles: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x and y (angles, d) of length r, in one random plane."""
    gaussian = torch.randn(DIM, 2, generator=generator, dtype=torch.float64)
    plane = torch.linalg.qr(gaussian)[0].T
    y = angles.cos().unsqueeze(-1) * plane[0] + angles.sin().unsqueeze(-1) * plane[1]
    return radius * plane[0].expand_as(y), radius * y


def estimates(options: dict[str, Any], x: Tensor, y: Tensor, draws: int, seed: int) -> Tensor:
    """(draws, angles): kernel estimates, each draw with independent random vectors."""
    heads = min(DRAWS_AT_ONCE, draws)
    fm = attention.feature_map(
        dim=DIM, projection="iid", heads=heads, dtype=torch.float64, seed=seed, **options
    )
    generator = torch.Generator().manual_seed(seed)
    x, y = (u.expand(heads, -1, -1) for u in (x, y))
    parts = []
    for _ in range(draws // heads):
        fm.redraw(generator)
        parts.append((fm.queries(x) * fm.keys(y)).sum(-1))
    return torch.cat(parts)


def measure(arguments: Arguments) -> Rows:
    """One entry per length and map."""
    draws, angles = (100, 5) if arguments.quick else (10_000, 25)
    seed = arguments.seed
    generator = torch.Generator().manual_seed(seed)
    theta = torch.linspace(0, math.pi, angles, dtype=torch.float64)
    results = []
    for radius in LENGTHS:
        x, y = pair(radius, theta, generator)
        kernel = attention.kernels.softmax(x, y)
        for label, options in settings(radius).items():
            # Not the generator of the plane: its numbers would be the first random vectors too.
            sample = estimates(options, x, y, draws, seed + 1)
            low, high = torch.quantile(sample, torch.tensor([0.05, 0.95]).double(), dim=0)
            predicted = theory.mse(x=x, y=y, **options)
            results.append(
                {
                    "length": radius,
                    "map": label,
                    "m": options["num_features"],
                    "angle_rad": theta.tolist(),
                    "kernel": kernel.tolist(),
                    "percentile_5": low.tolist(),
                    "percentile_95": high.tolist(),
                    "relative_error": ((sample - kernel).square().mean(0).sqrt() / kernel).tolist(),
                    "relative_error_theory": (predicted.clamp(min=0).sqrt() / kernel).tolist(),
                }
            )
    return results


def draw(results: Rows) -> Any:
    """One row per length: percentiles by map, then the relative errors of all maps."""
    count = len(figure.unique(results, "map"))
    plot, axes = figure.new_figure(count + 1, len(LENGTHS), size=(3.4, 2.9))
    for row, radius in zip(axes, LENGTHS, strict=True):
        for i, entry in enumerate(figure.select(results, length=radius)):
            angle, label, color = entry["angle_rad"], entry["map"], f"C{i}"
            band = entry["percentile_5"], entry["percentile_95"]
            row[i].fill_between(angle, *band, color=color, alpha=0.3)
            row[i].plot(angle, entry["kernel"], "k", lw=1)
            row[i].axhline(0, color="red", ls=":", lw=1)
            row[i].set(title=f"{label}, r = {radius:g}", xlabel="angle (rad)")
            row[i].title.set_fontsize(9)
            row[-1].plot(angle, entry["relative_error"], color=color, label=label)
            row[-1].plot(angle, entry["relative_error_theory"], ":", color=color)
        row[-1].set(title="relative error (dotted: theory)", xlabel="angle (rad)", yscale="log")
        row[-1].set_ylim(bottom=1e-3)
        row[-1].title.set_fontsize(9)
        row[-1].grid(alpha=0.3)
    axes[0][-1].legend(fontsize=6)
    return plot


def show(results: Rows) -> Lines:
    """Largest relative errors by map and length, with those of the closed forms."""
    yield f"largest relative error over all angles, d = {DIM} (theory)"
    rows = []
    for label in figure.unique(results, "map"):
        of = figure.select(results, map=label)
        both = ((max(r["relative_error"]), max(r["relative_error_theory"])) for r in of)
        cells = (f"{found:.3f} ({predicted:.3f})" for found, predicted in both)
        rows.append((label, of[0]["m"], *cells))
    yield from figure.lines(("map", "m", *(f"r = {r:g}" for r in LENGTHS)), rows, 26, 4, 20)


main = figure.command(
    measure, show, draw, plotted=("angle_rad", "kernel", "percentile_5", "percentile_95")
)
