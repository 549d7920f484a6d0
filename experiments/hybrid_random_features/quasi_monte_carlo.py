"""Hybrids beside quasi-Monte-Carlo trig features on wine and Boston (HRF paper, Table 1).

    python -m experiments.hybrid_random_features.quasi_monte_carlo

Mean squared error of the softmax kernel over 100 random pairs of rows, in units of 1e-3, mean and
standard deviation over repeats with new features and pairs. Baselines have m = 512 projections; the
angular hybrid has n = 8 and the largest m whose features take no more multiplications by the
paper's count (`experiments.hybrid_random_features.pointwise`).

The paper says neither how rows were scaled nor which m its hybrids had. Here columns are
standardised and rows have unit length, so the published numbers show an ordering, not a size.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

import attention
from experiments import figure
from experiments.data import uci
from experiments.figure import Arguments, Lines, Rows
from experiments.hybrid_random_features.pointwise import equal_cost_m

BASE_M = 512
N = 8
PAIRS = 100
SETS = ("wine", "boston")
PUBLISHED = {
    "wine": {"HRF-ort": (0.70, 0.08), "HRF-iid": (0.85, 0.05), "ORF-reg": (1.00, 0.04),
             "ORF-Had": (1.10, 0.06), "Halton-R": (4.02, 0.1)},
    "boston": {"HRF-ort": (0.72, 0.06), "HRF-iid": (0.79, 0.08), "ORF-reg": (1.05, 0.03),
               "ORF-Had": (1.14, 0.02), "Halton-R": (2.53, 0.08)},
}  # fmt: skip
"""Table 1: mean and standard deviation, 1e-3."""
METHODS = {
    "HRF-ort": ("angular_hybrid", "orthogonal"),
    "HRF-iid": ("angular_hybrid", "iid"),
    "ORF-reg": ("trig", "orthogonal"),
    "ORF-Had": ("trig", "hadamard"),
    "Halton-R": ("trig", "halton"),
    "iid": ("trig", "iid"),
    "ORF, hyperbolic": ("hyperbolic", "orthogonal"),
}


def rows(name: str, folder: str | None) -> Tensor:
    """(rows, d) float64: standardised columns, then unit length."""
    features = np.asarray(uci.load(name, folder).features, dtype=np.float64)
    standard = (features - features.mean(0)) / features.std(0)
    return torch.nn.functional.normalize(torch.from_numpy(standard), dim=-1)


def build(method: str, dim: int, seed: int) -> attention.FeatureMap:
    """The feature map of a method at equal cost."""
    name, projection = METHODS[method]
    options: dict[str, Any] = {"num_features": BASE_M}
    if name == "angular_hybrid":
        options = {"num_features": equal_cost_m(BASE_M, N, dim), "num_lambda_features": N}
    return attention.feature_map(
        name, dim, projection=projection, seed=seed, dtype=torch.float64, **options
    )


def errors_of(data: Tensor, method: str, repeats: int, seed: int) -> dict[str, Any]:
    """Mean squared error over pairs, by repeat."""
    generator = torch.Generator().manual_seed(seed)
    fm = build(method, data.shape[-1], seed)
    errors = []
    for _ in range(repeats):
        x, y = data[torch.randint(len(data), (2, PAIRS), generator=generator)]
        fm.redraw(generator)
        estimate = (fm.queries(x) * fm.keys(y)).sum(-1)
        errors.append(float((estimate - attention.kernels.softmax(x, y)).square().mean()))
    sample = 1e3 * torch.tensor(errors, dtype=torch.float64)
    return {
        "method": method,
        "m": fm.num_features,
        "mean_1e-3": float(sample.mean()),
        "std_1e-3": float(sample.std()),
        "standard_error_1e-3": float(sample.std() / repeats**0.5),
    }


def draw(results: Rows) -> Any:
    """Bars: ours and published (whose inputs have another scaling)."""
    rows = [
        {"method": f"{r['set']}, {r['method']}", "ours": r["mean_1e-3"],
         "published": PUBLISHED[r["set"]].get(r["method"], (None,))[0]}
        for r in results
    ]  # fmt: skip
    return figure.bars(rows, "method", ("ours", "published"))


def measure(arguments: Arguments) -> Rows:
    """One entry per set and method."""
    repeats = 10 if arguments.quick else 500
    results = []
    for name in SETS:
        data = rows(name, arguments.data)
        results += [
            {"set": name, **errors_of(data, method, repeats, arguments.seed)} for method in METHODS
        ]
    return results


def show(results: Rows) -> Lines:
    """Our errors next to the published ones."""
    yield f"MSE of the softmax kernel, 1e-3, {PAIRS} pairs"
    rows = []
    for r in results:
        mean, std = PUBLISHED[r["set"]].get(r["method"], (None, None))
        rows.append({**r, "published": "-" if mean is None else f"{mean:.2f} +- {std:.2f}"})
    columns = {"set": "{set}", "method": "{method}", "m": "{m}",
               "ours (standard error)": "{mean_1e-3:.3f} ({standard_error_1e-3:.3f})",
               "std": "{std_1e-3:.2f}", "published": "{published}"}  # fmt: skip
    yield from figure.table(rows, columns, 8, -15, 5, 26, 8, 14)


DATA = figure.option("--data", metavar="DIR", help="local folder of data sets (see uci.py)")
main = figure.command(measure, show, draw, DATA)
