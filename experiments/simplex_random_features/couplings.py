"""Couplings of positive features: conformity, error ratio and Gram matrices (simplex paper).

    python -m experiments.simplex_random_features.couplings [--out DIR] [--seed S] [--quick]

Simplex Random Features, Figures 4, 6 and 7. Gaussian kernel.

* Fig. 4: conformity of one draw of lengths, d = 6, v = |x + y| = 1; independent rows are a mean of
  100 draws of directions, `optimised` is what LBFGS finds for those lengths.
* Fig. 6: closed-form mean squared error over that of independent rows, against v; d = m = 64.
* Fig. 7: squared Frobenius distance between exact and estimated Gram matrices of 64 points from
  N(0, 0.01 I), d = 64; every repeat has new points and features.

The paper prints curves; the orderings that it claims are checked and printed.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import attention
from attention import theory
from attention.projections.orthogonal import haar
from attention.projections.simplex import simplex_matrix
from attention.projections.simplex_plus import arrange
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

COUPLINGS = ("iid", "orthogonal", "simplex", "simplex_plus")
POINTS = 64
DIM = 64


def growth(squares: Tensor, dim: int, v: float = 1.0) -> Tensor:
    """0F1(; d/2; v^2 w^2 / 4) from squared lengths w^2 of sums of two rows: its mean is the
    conformity at |x + y| = v (Definition 3.1).
    """
    z = squares * (v * v / 4)
    term, total = torch.ones_like(z), torch.ones_like(z)
    for k in range(60):
        term = term * z / ((k + 1) * (dim / 2 + k))
        total = total + term
    return total


def conformity(rows: Tensor) -> Tensor:
    """Mean of the growth over pairs i != j of rows (m, d)."""
    others = ~torch.eye(len(rows), dtype=torch.bool)
    sums = (rows.unsqueeze(0) + rows.unsqueeze(1))[others]
    return growth(sums.square().sum(-1), rows.shape[-1]).mean()


def optimise(start: Tensor) -> Tensor:
    """Rows of the same lengths whose directions minimise the conformity, by LBFGS from `start`."""
    lengths = torch.linalg.vector_norm(start, dim=-1, keepdim=True)
    free = start.clone().requires_grad_()
    solver = torch.optim.LBFGS([free], max_iter=500, tolerance_grad=1e-10, tolerance_change=1e-14)

    def rows() -> Tensor:
        return lengths * torch.nn.functional.normalize(free, dim=-1)

    def closure() -> Tensor:
        solver.zero_grad()
        loss = conformity(rows())
        loss.backward()
        return loss

    solver.step(closure)
    return rows().detach()


def conformities(seed: int, d: int = 6, draws: int = 100) -> dict[str, float]:
    """Figure 4: conformity by coupling, for one draw of lengths."""
    generator = torch.Generator().manual_seed(seed)
    gaussian = torch.randn(d, d, generator=generator, dtype=torch.float64)
    lengths = torch.linalg.vector_norm(gaussian, dim=-1, keepdim=True)
    directions = torch.randn(draws, d, d, generator=generator, dtype=torch.float64)
    independent = torch.stack(
        [conformity(lengths * u) for u in torch.nn.functional.normalize(directions, dim=-1)]
    )
    simplex = lengths * simplex_matrix(d)
    plus = arrange(simplex.unsqueeze(0)).squeeze(0)
    found = {"orthogonal": haar(1, d, generator)[0] * lengths, "simplex": simplex}
    found |= {"simplex_plus": plus, "optimised": optimise(plus)}
    iid = {"iid": float(independent.mean()), "iid std": float(independent.std())}
    return iid | {name: float(conformity(rows)) for name, rows in found.items()}


def error_ratios() -> dict[str, list[float]]:
    """Figure 6: error over that of independent rows, by v; the ratio depends on x and y by v."""
    v = torch.linspace(0.05, 8, 120, dtype=torch.float64)
    # x = y = v/2 along one axis.
    x = torch.zeros(len(v), DIM, dtype=torch.float64)
    x[:, 0] = v / 2
    errors = {
        name: theory.mse("positive", x, x, DIM, kernel="gaussian", projection=name)
        for name in ("iid", "orthogonal", "simplex")
    }
    ratios = {name: (errors[name] / errors["iid"]).tolist() for name in ("orthogonal", "simplex")}
    return {"v": v.tolist(), **ratios}


def gram_errors(sizes: Sequence[int], repeats: int, seed: int) -> Rows:
    """Figure 7: squared Frobenius errors, one entry per coupling and m."""
    results = []
    for m in sizes:
        generator = torch.Generator().manual_seed(seed)
        errors: dict[str, list[float]] = {name: [] for name in COUPLINGS}
        maps = {
            name: attention.feature_map(
                "positive", DIM, m, kernel="gaussian", projection=name, dtype=torch.float64
            )
            for name in COUPLINGS
        }
        for _ in range(repeats):
            x = 0.1 * torch.randn(POINTS, DIM, generator=generator, dtype=torch.float64)
            exact = attention.kernels.gaussian(x.unsqueeze(1), x.unsqueeze(0))
            for name, fm in maps.items():
                fm.redraw(generator)
                features = fm.queries(x)
                errors[name].append(float((features @ features.T - exact).square().sum()))
        for name, values in errors.items():
            sample = torch.tensor(values, dtype=torch.float64)
            error = float(sample.std() / repeats**0.5)
            row = {"coupling": name, "m": m, "mean": float(sample.mean())}
            results.append({**row, "standard_error": error})
    return results


def draw(results: dict[str, Any]) -> Any:
    """Figures 4, 6 and 7 side by side."""
    plot, ((left, middle, right),) = figure.new_figure(3)
    bars = [name for name in results["conformity"] if name != "iid std"]
    heights = [results["conformity"][name] for name in bars]
    left.bar(bars, heights, yerr=[results["conformity"]["iid std"]] + [0.0] * (len(bars) - 1))
    left.tick_params(axis="x", rotation=30)
    left.set(title="Conformity, d = 6, v = 1 (Fig. 4)", ylim=(1, None))
    ratios = results["error_ratio"]
    for name in ("orthogonal", "simplex"):
        middle.plot(ratios["v"], ratios[name], label=name)
    middle.axhline(1, color="grey", lw=1, label="iid")
    middle.set(xlabel="v = |x + y|", title="Error / error of iid, d = 64 (Fig. 6)", ylim=(0, 1.05))
    for name in COUPLINGS:
        curve = figure.select(results["gram"], coupling=name)
        m, mean, error = (figure.column(curve, k) for k in ("m", "mean", "standard_error"))
        right.errorbar(m, mean, error, label=name, marker=".")
    right.set(xlabel="m", xscale="log", yscale="log", title="Squared Gram error (Fig. 7)")
    figure.finish(middle, right)
    return plot


def measure(arguments: Arguments) -> dict[str, Any]:
    """The three figures by name."""
    sizes, repeats = ((16, 64), 10) if arguments.quick else ((8, 16, 32, 64, 128, 256), 200)
    return {
        "conformity": conformities(arguments.seed),
        "error_ratio": error_ratios(),
        "gram": gram_errors(sizes, repeats, arguments.seed),
    }


def show(results: dict[str, Any]) -> Lines:
    """Conformities, error ratios for short sums, and Gram errors by m."""
    yield "conformity, d = 6, v = 1, one draw of lengths (less is better)"
    for name, value in results["conformity"].items():
        yield f"  {name:<14}{value:.4f}"
    small = {name: results["error_ratio"][name][0] for name in ("orthogonal", "simplex")}
    yield (
        "error / error of iid at v = 0.05, d = m = 64: "
        f"orthogonal {small['orthogonal']:.5f}, simplex {small['simplex']:.5f} "
        f"(theory for v -> 0: {theory.small_sum_factor('simplex', DIM, DIM):.5f})"
    )
    yield "squared Frobenius error of a Gram matrix"
    cells = (f"{r['mean']:.4g} +- {r['standard_error']:<8.2g}" for r in results["gram"])
    rows = ((m, *itertools.islice(cells, 4)) for m in figure.unique(results["gram"], "m"))
    yield from figure.lines(("m", *COUPLINGS), rows, 6, 24)


main = figure.command(measure, show, draw)
