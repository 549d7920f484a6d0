"""Largest error of sin/cos features (phi) against random-phase features (psi) in one dimension.

    python -m experiments.error_of_random_fourier_features.max_error

On the Error of Random Fourier Features, Figures 1 to 4: Gaussian kernel, unit bandwidth, D feature
rows for both (phi has D/2 frequencies, psi D). The largest error over x and y in [-r, r] is taken
on a grid; each repeat has new features. The poster prints no numbers; its claims are that phi has
the smaller variance, the smaller constant and bound, and the smaller largest error. The constants
of Figure 2 are those of `theory.uniform_constant`, which the poster does not give."""

from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

RADIUS = 3.0
LARGEST_DIM = 200
NAMES = {"phi": "trig", "psi": "trig_phase"}
STYLES = {"phi": "-", "psi": "--"}


def largest_errors(name: str, rows: int, repeats: int, points: int, seed: int) -> Tensor:
    """(repeats, len(radii)): largest |error| over the grid's points with |x|, |y| <= radius, of
    phi or psi with D = `rows` feature rows.
    """
    x = torch.linspace(-RADIUS, RADIUS, points, dtype=torch.float64).unsqueeze(-1)
    exact = attention.kernels.gaussian(x.unsqueeze(1), x.unsqueeze(0))
    m, centre = rows // 2 if name == "phi" else rows, points // 2
    fm = attention.feature_map(
        NAMES[name], 1, m, kernel="gaussian", projection="iid", seed=seed, dtype=torch.float64
    )
    generator = torch.Generator().manual_seed(seed)
    result = torch.empty(repeats, centre, dtype=torch.float64)
    for row in result:
        fm.redraw(generator)
        error = (fm.queries(x) @ fm.keys(x).T - exact).abs()
        for k in range(centre):
            inside = slice(centre - 1 - k, centre + 2 + k)  # the points within the k-th radius
            row[k] = error[inside, inside].max()
    return result


def measure(arguments: Arguments) -> Rows:
    """One entry per map and number of rows: mean largest error by radius, and the samples."""
    sizes, repeats, points = ((50,), 20, 31) if arguments.quick else ((50, 100, 500, 1000), 300, 61)
    radii = [RADIUS * (k + 1) / (points // 2) for k in range(points // 2)]
    results: Rows = []
    for rows in sizes:
        for name in NAMES:
            errors = largest_errors(name, rows, repeats, points, arguments.seed)
            last = errors[:, -1]
            results.append(
                {
                    "features": name,
                    "rows": rows,
                    "repeats": repeats,
                    "radii": radii,
                    "mean_largest_error": errors.mean(0).tolist(),
                    "standard_error": float(last.std() / repeats**0.5),
                    "largest_errors": sorted(last.tolist()),
                }
            )
    return results


def constants() -> dict[str, list[float]]:
    """Figure 2: beta_d of phi and beta'_d of psi for d from 1 to `LARGEST_DIM`."""
    dims = range(1, LARGEST_DIM + 1)
    return {name: [theory.uniform_constant(of, d) for d in dims] for name, of in NAMES.items()}


def show(results: Rows) -> Lines:
    """Largest errors by D, then the constants of the bounds."""
    yield f"mean largest error on [-{RADIUS:g}, {RADIUS:g}], {results[0]['repeats']} repeats"
    rows = []
    for both in zip(results[::2], results[1::2], strict=True):
        phi, psi = (entry["mean_largest_error"][-1] for entry in both)
        errors = [f"{e['mean_largest_error'][-1]:.4f} +- {e['standard_error']:.4f}" for e in both]
        rows.append((both[0]["rows"], *errors, f"{psi / phi:.2f}"))
    yield from figure.lines(("D", *NAMES, "psi / phi"), rows, 6, 17, 17, 11)
    for name, values in constants().items():
        largest = max(values)
        yield (
            f"beta of {name}: {values[0]:.2f} at d = 1, {values[9]:.2f} at d = 10, at most "
            f"{largest:.2f}, at d = {values.index(largest) + 1}"
        )


def draw(results: Rows) -> Any:
    """Figures 1 to 4 of the poster side by side."""
    plot, ((variance, beta, largest, tail),) = figure.new_figure(4)
    distance = torch.linspace(0, 4, 200, dtype=torch.float64).unsqueeze(-1)
    zero = torch.zeros_like(distance)
    for (name, style), m in zip(STYLES.items(), (1, 2), strict=True):
        one = 2 * theory.mse(NAMES[name], distance, zero, m, kernel="gaussian")
        variance.plot(distance.squeeze(-1), one, style, label=name)
    for name, values in constants().items():
        beta.plot(range(1, LARGEST_DIM + 1), values, label=name)
    colours = {rows: f"C{i}" for i, rows in enumerate(figure.unique(results, "rows"))}
    for entry in results:
        line = {"ls": STYLES[entry["features"]], "color": colours[entry["rows"]]}
        line["label"] = f"{entry['features']}, D = {entry['rows']}"
        largest.plot(entry["radii"], entry["mean_largest_error"], **line)
        survival = [1 - i / entry["repeats"] for i in range(entry["repeats"])]
        tail.plot(entry["largest_errors"], survival, **line)
    variance.set(xlabel="|x - y|", ylabel="variance times D", title="Variance (Fig. 1)")
    beta.set(xlabel="d", ylabel="constant of the bound", title="beta (Fig. 2)")
    largest.set(xlabel="radius r", ylabel="mean largest error", title="Largest error (Fig. 3)")
    tail.set(xlabel="epsilon", ylabel="P(largest error > epsilon)")
    tail.set_title(f"Tail on [-{RADIUS:g}, {RADIUS:g}] (Fig. 4)")
    figure.finish(variance, beta, largest, tail)
    return plot


main = figure.command(measure, show, draw, plotted=("radii", "largest_errors"))
