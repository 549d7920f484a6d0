"""Error against FLOPs: every map that estimates softmax attention, on three kinds of data.

    python -m experiments.feature_maps.error_per_flop [--out DIR] [--seed S] [--quick]

512 queries and keys of d = 64, values of dv = 64:

    unit       random directions of length 1, as in this project's robot policies
    gaussian   N(0, I) times d**-0.25, as a Transformer's queries and keys before it is trained:
               length 2.8, logits of deviation 1
    clustered  4 clusters of queries and 4 of keys around centres of length 2, each key cluster
               near one query cluster, noise of length 0.5

Each map gets the m with which its features are as long as F allows, F = 64 to 1024, and is fitted
to the data by `fit`. Errors are relative Frobenius norms, of the kernel matrix against exp(x.y) and
of the attention output against exact softmax attention: medians over 7 draws of the random vectors,
in float64, so that they are the maps' and not the arithmetic's. FLOPs are those of
`FeatureMap.attend` for a token (a query, a key and a value), counted as executed
(`training.analysis.op_counter`). Beside the maps stand exact attention and the mean of all
values, which costs next to nothing: a map is worth its FLOPs where it is well below that. Signed
powers (poisson, geometric) refuse attention for negative entries, so only their kernel is measured.
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import attention
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from training.analysis.step_cost import count

DIM = 64
FULL = {"length": 512, "features": (64, 128, 256, 512, 1024), "draws": 7}
QUICK = {"length": 48, "features": (64,), "draws": 1}
BUDGETS = (20_000, 40_000, 80_000, 160_000, 320_000)
"""FLOPs a token for which the best map is printed."""
NUMBER_OF_CLUSTERS = 4


def _unit(length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = torch.randn(2, length, DIM, generator=generator, dtype=torch.float64)
    return functional.normalize(x, dim=-1), functional.normalize(y, dim=-1)


def _gaussian(length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = DIM**-0.25 * torch.randn(2, length, DIM, generator=generator, dtype=torch.float64)
    return x, y


def _clustered(length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    directions = torch.randn(2, NUMBER_OF_CLUSTERS, DIM, generator=generator, dtype=torch.float64)
    query, other = functional.normalize(directions, dim=-1)
    centers = (2 * query, 2 * functional.normalize(query + other, dim=-1))
    which = torch.arange(length) % NUMBER_OF_CLUSTERS
    noise = torch.randn(2, length, DIM, generator=generator, dtype=torch.float64)
    x, y = (c[which] + 0.5 * DIM**-0.5 * n for c, n in zip(centers, noise, strict=True))
    return x, y


DATA: dict[str, Callable[[int, torch.Generator], tuple[Tensor, Tensor]]] = {
    "unit": _unit,
    "gaussian": _gaussian,
    "clustered": _clustered,
}
_CLUSTERS = {
    "name": "clustered_hybrid",
    "num_query_clusters": NUMBER_OF_CLUSTERS,
    "num_key_clusters": NUMBER_OF_CLUSTERS,
    "a_limits": (0.2, 5.0),
}
_PAIR = {"name": "angular_hybrid", "shared_projections": False}
MAPS: dict[str, dict[str, Any]] = {
    "positive, iid": {"name": "positive", "projection": "iid"},
    "positive": {"name": "positive"},
    "positive, hadamard": {"name": "positive", "projection": "hadamard"},
    "positive, simplex": {"name": "positive", "projection": "simplex"},
    "positive, simplex_plus": {"name": "positive", "projection": "simplex_plus"},
    "positive, fast_simplex": {"name": "positive", "projection": "fast_simplex"},
    "positive, halton": {"name": "positive", "projection": "halton"},
    "hyperbolic": {"name": "hyperbolic"},
    "hyperbolic, simplex": {"name": "hyperbolic", "projection": "simplex"},
    "oprf": {"name": "oprf"},
    "oprf, simplex": {"name": "oprf", "projection": "simplex"},
    "gerf": {"name": "gerf"},
    "trig, iid": {"name": "trig", "projection": "iid"},
    "trig": {"name": "trig"},
    "trig_phase": {"name": "trig_phase"},
    "poisson": {"name": "poisson"},
    "poisson_plus": {"name": "poisson_plus"},
    "geometric": {"name": "geometric"},
    "geometric_plus": {"name": "geometric_plus"},
    "complex_exponential": {"name": "complex_exponential"},
    "angular_hybrid": {"name": "angular_hybrid"},
    "angular_hybrid, positive + trig": {**_PAIR, "base": ("positive", "trig")},
    "angular_hybrid, oprf simplex + trig": {
        **_PAIR,
        "base": ("oprf", "trig"),
        "projection": ("simplex", "orthogonal"),
    },
    "gaussian_hybrid": {"name": "gaussian_hybrid", "num_lambda_features": 4},
    "clustered_hybrid, real A": {**_CLUSTERS, "complex_a": False},
    "clustered_hybrid, complex A": {**_CLUSTERS},
}
"""Orthogonal rows where nothing else is said."""
KERNEL_ONLY = ("poisson", "geometric")
DRAWN = {
    "positive": "C0-",
    "positive, simplex": "C0--",
    "oprf": "C1-",
    "oprf, simplex": "C1--",
    "hyperbolic": "C2-",
    "trig": "C3-",
    "geometric_plus": "C5-",
    "angular_hybrid": "C6-",
    "angular_hybrid, oprf simplex + trig": "C6--",
    "gaussian_hybrid": "C7-",
    "clustered_hybrid, real A": "C8-",
    "clustered_hybrid, complex A": "C8--",
}
"""Maps in the image, and their lines; the others are in the table and the JSON."""


def build(options: dict[str, Any], features: int) -> attention.FeatureMap:
    """The map with the most random vectors whose features are no longer than `features`."""
    size = attention.feature_map(dim=DIM, num_features=1, **options).output_dim
    return attention.feature_map(
        dim=DIM, num_features=max(1, features // size), dtype=torch.float64, **options
    )


def relative(estimate: Tensor, exact: Tensor) -> float:
    """|estimate - exact| / |exact|, Frobenius norms."""
    return float((estimate - exact).norm() / exact.norm())


def measure_map(
    fm: attention.FeatureMap,
    x: Tensor,
    y: Tensor,
    values: Tensor,
    draws: int,
    seed: int,
    attends: bool = True,
) -> dict[str, Any]:
    """Errors and cost of a fitted map."""
    kernel = attention.kernels.softmax(x.unsqueeze(-2), y)
    exact = (kernel / kernel.sum(-1, keepdim=True)) @ values
    # Not the data's seed: random vectors must not repeat the queries' numbers.
    generator = torch.Generator().manual_seed(seed + 1)
    errors: dict[str, list[float]] = {"kernel": [], "attention": []}
    for _ in range(draws):
        fm.redraw(generator)
        errors["kernel"].append(relative(fm.queries(x) @ fm.keys(y).mT, kernel))
        if attends:
            errors["attention"].append(relative(fm.attend(x, y, values), exact))
    row: dict[str, Any] = {
        "m": fm.num_features,
        "F": fm.output_dim,
        "signed": fm.signed,
        "flops_a_token": None,
        "kernel_error": statistics.median(errors["kernel"]),
        "attention_error": None,
    }
    if attends:
        row["flops_a_token"] = count(lambda: fm.attend(x, y, values)).total / len(x)
        row["attention_error"] = statistics.median(errors["attention"])
        row["attention_error_least_largest"] = [min(errors["attention"]), max(errors["attention"])]
        row["clamped_rows"] = attention.diagnose(fm, x, y).clamped_rows
    return row


@torch.no_grad()
def measure(arguments: Arguments) -> dict[str, Any]:
    """By kind of data: `maps`, one entry per map and F, and the two `references`."""
    size: dict[str, Any] = QUICK if arguments.quick else FULL
    length, features, draws, seed = *size.values(), arguments.seed
    results = {}
    for kind, make in DATA.items():
        generator = torch.Generator().manual_seed(seed)
        x, y = make(length, generator)
        values = torch.randn(length, DIM, generator=generator, dtype=torch.float64)
        rows = []
        for label, options in MAPS.items():
            for most in features:
                fm = build({"seed": seed, **options}, most).fit(x, y)
                if fm.output_dim <= most:
                    attends = options["name"] not in KERNEL_ONLY
                    row = measure_map(fm, x, y, values, draws, seed, attends)
                    rows.append({"map": label, "F_allowed": most, **row})
        results[kind] = {"maps": rows, "references": references(x, y, values)}
    return results


def references(x: Tensor, y: Tensor, values: Tensor) -> dict[str, float]:
    """FLOPs per token of exact attention at this length, and the error of the values' mean."""
    exact = (x @ y.mT).softmax(-1) @ values
    counted = count(lambda: functional.scaled_dot_product_attention(x, y, values, scale=1.0))
    return {
        "exact_flops_a_token": counted.total / len(x),
        "mean_of_values_error": relative(values.mean(0).expand_as(exact), exact),
    }


def best_within(rows: Rows, budget: float) -> Rows:
    """Each map's least attention error within the budget, best map first."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["attention_error"] is None or row["flops_a_token"] > budget:
            continue
        known = best.get(row["map"])
        if known is None or row["attention_error"] < known["attention_error"]:
            best[row["map"]] = row
    return sorted(best.values(), key=lambda row: row["attention_error"])


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return f"{'-':>20}"
    if row["attention_error"] is None:
        return f"{'-':>7}{row['kernel_error']:>8.2g}{'-':>5}"
    return (
        f"{row['attention_error']:>7.3f}{row['kernel_error']:>8.2g}"
        f"{row['flops_a_token'] / 1e3:>5.0f}"
    )


def show(results: dict[str, Any]) -> Lines:
    """Errors by map and F, then the best maps per budget."""
    width = max(map(len, MAPS))
    for kind, result in results.items():
        features = sorted({row["F_allowed"] for row in result["maps"]})
        rows, reference = result["maps"], result["references"]
        yield (
            f"\n{kind}: attention error, kernel error, thousand FLOPs a token (mean of values: "
            f"{reference['mean_of_values_error']:.3f}, 0; exact: 0, "
            f"{reference['exact_flops_a_token'] / 1e3:.0f} and proportional to the length)"
        )
        yield f"{'map':<{width}}" + "".join(f"{f'F <= {size}':>20}" for size in features)
        for label in MAPS:
            of = {row["F_allowed"]: row for row in rows if row["map"] == label}
            yield f"{label:<{width}}" + "".join(_cell(of.get(size)) for size in features)
        for budget in BUDGETS:
            best = best_within(rows, budget)[:3]
            if best:
                named = "; ".join(f"{r['map']} {r['attention_error']:.3g}" for r in best)
                yield f"least attention error within {budget // 1000:>3} thousand: {named}"


def draw(results: dict[str, Any]) -> Any:
    """One column per kind of data: kernel error above, attention error below."""
    plot, axes = figure.new_figure(len(results), 2, size=(3.9, 3.3))
    for column, (kind, result) in zip(axes.T, results.items(), strict=True):
        for axis, error in zip(column, ("kernel_error", "attention_error"), strict=True):
            for label, line in DRAWN.items():
                rows = [row for row in result["maps"] if row["map"] == label]
                axis.plot(
                    [row["flops_a_token"] for row in rows],
                    [row[error] for row in rows],
                    line,
                    marker=".",
                    label=label,
                )
            axis.set(xscale="log", yscale="log", xlabel="FLOPs a token")
            axis.set_title(f"{kind}: {error.replace('_', ' ')}", fontsize=10)
            axis.grid(alpha=0.3)
        axis = column[1]
        axis.axhline(
            result["references"]["mean_of_values_error"],
            color="k", ls="--", lw=1, label="mean of the values",
        )  # fmt: skip
        # An outlier would compress the scale of all others.
        for axis in column:
            low, high = axis.get_ylim()
            axis.set_ylim(low, min(high, 20))
    handles, labels = axes[1][0].get_legend_handles_labels()
    plot.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return plot


main = figure.command(measure, show, draw)
