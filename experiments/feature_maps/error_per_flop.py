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
from experiments.figure import Arguments, Lines, Row, Rows
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
    "name": "clustered_hybrid", "num_query_clusters": NUMBER_OF_CLUSTERS,
    "num_key_clusters": NUMBER_OF_CLUSTERS, "a_limits": (0.2, 5.0),
}  # fmt: skip
_PAIR = {"name": "angular_hybrid", "shared_projections": False}
_SINGLE = (
    "positive, iid", "positive", "positive, hadamard", "positive, simplex",
    "positive, simplex_plus", "positive, fast_simplex", "positive, halton", "hyperbolic",
    "hyperbolic, simplex", "oprf", "oprf, simplex", "gerf", "trig, iid", "trig", "trig_phase",
    "poisson", "poisson_plus", "geometric", "geometric_plus", "complex_exponential",
    "angular_hybrid",
)  # fmt: skip
"""Maps with their projections; orthogonal rows where nothing else is said."""
MAPS: dict[str, dict[str, Any]] = {
    **{one: dict(zip(("name", "projection"), one.split(", "), strict=False)) for one in _SINGLE},
    "angular_hybrid, positive + trig": {**_PAIR, "base": ("positive", "trig")},
    "angular_hybrid, oprf simplex + trig": {
        **_PAIR, "base": ("oprf", "trig"), "projection": ("simplex", "orthogonal"),
    },
    "gaussian_hybrid": {"name": "gaussian_hybrid", "num_lambda_features": 4},
    "clustered_hybrid, real A": {**_CLUSTERS, "complex_a": False},
    "clustered_hybrid, complex A": {**_CLUSTERS},
}  # fmt: skip
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
    fm: attention.FeatureMap, x: Tensor, y: Tensor, values: Tensor, draws: int, seed: int,
    attends: bool = True,
) -> Row:  # fmt: skip
    """Errors and cost of a fitted map."""
    kernel = attention.kernels.softmax(x.unsqueeze(-2), y)
    exact = (kernel / kernel.sum(-1, keepdim=True)) @ values
    # Not the data's seed: random vectors must not repeat the queries' numbers.
    generator = torch.Generator().manual_seed(seed + 1)
    of_kernel, errors = [], []
    for _ in range(draws):
        fm.redraw(generator)
        of_kernel.append(relative(fm.queries(x) @ fm.keys(y).mT, kernel))
        if attends:
            errors.append(relative(fm.attend(x, y, values), exact))
    row: Row = {"m": fm.num_features, "F": fm.output_dim, "signed": fm.signed}
    row |= {"flops_a_token": None, "kernel_error": statistics.median(of_kernel)}
    row |= dict.fromkeys(("attention_error", "attention_error_least_largest", "clamped_rows"))
    if attends:
        row["flops_a_token"] = count(lambda: fm.attend(x, y, values)).total / len(x)
        row["attention_error"] = statistics.median(errors)
        row["attention_error_least_largest"] = [min(errors), max(errors)]
        row["clamped_rows"] = attention.diagnose(fm, x, y).clamped_rows
    return row


@torch.no_grad()
def measure(arguments: Arguments) -> dict[str, Any]:
    """Return, by kind of data, `maps`, one entry per map and F, and the two `references`."""
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
    found = [r for r in rows if r["attention_error"] is not None and r["flops_a_token"] <= budget]
    found.sort(key=lambda row: row["attention_error"])
    best = {row["map"]: row for row in reversed(found)}  # the least of each comes last
    return sorted(best.values(), key=lambda row: row["attention_error"])


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row["attention_error"] is None:
        return f"{'-':>7}{row['kernel_error']:>8.2g}{'-':>5}"
    flops = row["flops_a_token"] / 1e3
    return f"{row['attention_error']:>7.3f}{row['kernel_error']:>8.2g}{flops:>5.0f}"


def show(results: Row) -> Lines:
    """Errors by map and F, then the best maps per budget."""
    for kind, result in results.items():
        rows, reference = result["maps"], result["references"]
        features = sorted(figure.unique(rows, "F_allowed"))
        yield (
            f"\n{kind}: attention error, kernel error, thousand FLOPs a token (mean of values: "
            f"{reference['mean_of_values_error']:.3f}, 0; exact: 0, "
            f"{reference['exact_flops_a_token'] / 1e3:.0f} and proportional to the length)"
        )
        table = []
        for label in MAPS:
            of = {row["F_allowed"]: row for row in figure.select(rows, map=label)}
            table.append((label, *(_cell(of.get(size)) for size in features)))
        head = ("map", *(f"F <= {size}" for size in features))
        yield from figure.lines(head, table, max(map(len, MAPS)), 20)
        for budget in BUDGETS:
            best = best_within(rows, budget)[:3]
            if best:
                named = "; ".join(f"{r['map']} {r['attention_error']:.3g}" for r in best)
                yield f"least attention error within {budget // 1000:>3} thousand: {named}"


def draw(results: Row) -> Any:
    """One column per kind of data: kernel error above, attention error below."""
    plot, axes = figure.new_figure(len(results), 2, size=(3.9, 3.3))
    for column, (kind, result) in zip(axes.T, results.items(), strict=True):
        for axis, error in zip(column, ("kernel_error", "attention_error"), strict=True):
            for label, line in DRAWN.items():
                rows = figure.select(result["maps"], map=label)
                places = figure.column(rows, "flops_a_token"), figure.column(rows, error)
                axis.plot(*places, line, marker=".", label=label)
            axis.set(xscale="log", yscale="log", xlabel="FLOPs a token")
            axis.set_title(f"{kind}: {error.replace('_', ' ')}", fontsize=10)
            axis.grid(alpha=0.3)
        mean = result["references"]["mean_of_values_error"]
        column[1].axhline(mean, color="k", ls="--", lw=1, label="mean of the values")
        for axis in column:  # an outlier would compress the scale of all others
            low, high = axis.get_ylim()
            axis.set_ylim(low, min(high, 20))
    handles, labels = axes[1][0].get_legend_handles_labels()
    plot.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return plot


main = figure.command(measure, show, draw)
