"""Error of trig, FAVOR+ and angular hybrid features over angle and length (HRF paper, Figure 1).

    python -m experiments.hybrid_random_features.error_surface [--out DIR] [--seed S] [--quick]

Hybrid Random Features, Figure 1: closed-form mean squared error of the softmax kernel for m = 10,
n = 1 and inputs of one length r up to 5, over the angle between them. The angular hybrid's bases
have separate random vectors; for one length sharing them changes nothing. Beside the closed
forms: the errors of drawn estimates at r = 1, where tails are light enough to measure them.

The paper shows surfaces without numbers. Its claim is that the hybrid's error alone goes to zero
both at angle 0 and at angle pi.
"""

import math
from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from experiments import figure
from experiments.figure import Arguments, Lines
from experiments.hybrid_random_features.pointwise import pair

M = 10
N = 1
LONGEST = 5.0
SLICES = (1.0, 3.0, 5.0)
MAPS: dict[str, dict[str, Any]] = {
    "trig": {"name": "trig"},
    "FAVOR+ (hyperbolic)": {"name": "hyperbolic"},
    "angular hybrid": {
        "name": "angular_hybrid", "num_lambda_features": N, "shared_projections": False,
    },
}  # fmt: skip


def errors(options: dict[str, Any], theta: Tensor, r: Tensor) -> Tensor:
    """Mean squared errors of x and y of length r at the angle theta, elementwise."""
    x = torch.stack((r, 0 * r), -1)
    y = torch.stack((r * theta.cos(), r * theta.sin()), -1)
    # x + y at angle pi and x - y at angle 0 are rounding, and the errors there with them.
    return theory.mse(x=x, y=y, num_features=M, **options)


def measured(options: dict[str, Any], theta: Tensor, draws: int, seed: int) -> list[float]:
    """Mean squared errors of `draws` estimates at length 1."""
    x, y = pair(1.0, theta, torch.Generator().manual_seed(seed))
    fm = attention.feature_map(
        dim=x.shape[-1], num_features=M, projection="iid", heads=draws, dtype=torch.float64,
        seed=seed + 1, **options,
    )  # fmt: skip
    of_x, of_y = (u.expand(draws, *u.shape) for u in (x, y))
    exact = attention.kernels.softmax(x, y)
    return ((fm.queries(of_x) * fm.keys(of_y)).sum(-1) - exact).square().mean(0).tolist()


def measure(arguments: Arguments) -> dict[str, Any]:
    """The surfaces, and their slices at a few angles and lengths."""
    points, draws = (21, 200) if arguments.quick else (201, 10_000)
    theta = torch.linspace(0, math.pi, points, dtype=torch.float64)
    r = torch.linspace(0, LONGEST, points, dtype=torch.float64)
    shown = torch.linspace(0, math.pi, 5, dtype=torch.float64)
    surfaces, slices = {}, []
    for label, options in MAPS.items():
        surface = errors(options, *torch.meshgrid(theta, r, indexing="ij"))
        surfaces[label] = surface.clamp(min=1e-300).log10().tolist()
        for length in SLICES:
            row = errors(options, shown, torch.full_like(shown, length))
            slices.append({"map": label, "length": length, "errors": row.tolist()})
        found = measured(options, shown, draws, arguments.seed)
        slices.append({"map": label, "length": 1.0, "measured": found})
    return {
        "angle_rad": theta.tolist(),
        "length": r.tolist(),
        "log10_error": surfaces,
        "slice_angle_rad": shown.tolist(),
        "slices": slices,
    }


def draw(results: dict[str, Any]) -> Any:
    """log10 of the errors over angle and length, each with the scale of all."""
    plot, axes = figure.new_figure(len(MAPS))
    for axis, (label, surface) in zip(axes[0], results["log10_error"].items(), strict=True):
        values = torch.tensor(surface)
        # Mirrored in r, as in the paper.
        values = torch.cat((values.flip(1), values[:, 1:]), 1)
        extent = (-LONGEST, LONGEST, 0, math.pi)
        style = {"origin": "lower", "aspect": "auto", "extent": extent, "vmin": -8, "vmax": 24}
        image = axis.imshow(values.tolist(), **style)
        axis.set(xlabel="length r (mirrored)", ylabel="angle (rad)", title=label)
    plot.colorbar(image, ax=list(axes[0]), label="log10 of the mean squared error")
    return plot


def show(results: dict[str, Any]) -> Lines:
    """Errors by map, length and angle, closed forms and measured."""
    yield f"mean squared error of exp(x.y), m = {M}, n = {N}"
    rows = []
    for entry in results["slices"]:
        kind, values = ("measured" if "measured" in entry else "theory"), [*entry.values()][-1]
        cells = (f"{value:.3g}" for value in values)
        rows.append((entry["map"], f"{entry['length']:g}", kind, *cells))
    heads = (f"{angle / math.pi:.2f} pi" for angle in results["slice_angle_rad"])
    yield from figure.lines(("map", "r", "", *heads), rows, 22, 4, 10, 11)


main = figure.command(measure, show, draw, plotted=("angle_rad", "length", "log10_error"))
