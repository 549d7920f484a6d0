"""Token scores at the sizes of an implicit attention policy: FLOPs, latency and error.

    python -m benchmarks.attention_cost [--device cuda] [--out attention_cost.json]

Queries and keys are random unit vectors. The error is that of the scores relative to the exact
ones, |s - s*| / |s*|, a mean over draws of the random vectors; `agreement` is the share of the
tokens kept by the exact scores (the top half) that the estimate keeps too.
"""

import statistics
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

import attention
from experiments import figure
from experiments.figure import Arguments, Row, Rows
from training.analysis.agents import check_device
from training.analysis.step_cost import count, median_ms

SIZES = ((96, 4), (96, 8), (1536, 4), (1536, 8))
"""Tokens (patches of 4 x 4 pixels, or pixels, of two 24 x 32 images) and d."""
MAPS: dict[str, dict[str, Any]] = {
    "exact softmax": {},
    "positive m=256": {"name": "positive", "num_features": 256},
    "trig m=256": {"name": "trig", "num_features": 256},
    "hyperbolic m=128": {"name": "hyperbolic", "num_features": 128},
    "angular_hybrid m=n=8": {"name": "angular_hybrid", "num_features": 8, "num_lambda_features": 8},
    "angular_hybrid m=n=4": {"name": "angular_hybrid", "num_features": 4, "num_lambda_features": 4},
}
DRAWS = 10
COLUMNS = {
    "tokens": "{tokens}", "d": "{dim}", "map": "{map}", "FLOPs": "{flops_total:,}",
    "projection": "{flops[projection]:,}", "exponent.": "{flops[exponentials]:,}",
    "score": "{flops[score]:,}", "ms": "{latency_ms:.3f}", "error": "{relative_error_mean:.1%}",
    "agreement": "{agreement_mean:.1%}",
}  # fmt: skip


def _build(options: dict[str, Any], dim: int, seed: int, device: str) -> Any:
    if not options:
        return attention.ExactSoftmax(dim).to(device)
    return attention.feature_map(dim=dim, seed=seed, **options).to(device)


def _measure(options: dict[str, Any], x: Tensor, y: Tensor, device: str, calls: int) -> Row:
    exact = attention.ExactSoftmax(x.shape[-1]).token_scores(x.double(), y.double())
    kept = set(exact.topk(len(exact) // 2).indices.tolist())
    errors, agreements = [], []
    for seed in range(DRAWS):
        scores = _build(options, x.shape[-1], seed, device).token_scores(x, y).double()
        errors.append(float((scores - exact).norm() / exact.norm()))
        chosen = set(scores.topk(len(kept)).indices.tolist())
        agreements.append(len(chosen & kept) / len(kept))
    scorer = _build(options, x.shape[-1], 0, device)
    counted = count(lambda: scorer.token_scores(x, y))
    parts = dict.fromkeys(("projection", "exponentials", "score"), 0)
    return {
        "flops": {**parts, **counted.by_component},
        "flops_total": counted.total,
        "latency_ms": median_ms(lambda: scorer.token_scores(x, y), device, calls),
        "relative_error_mean": statistics.mean(errors),
        "agreement_mean": statistics.mean(agreements),
    }


@torch.no_grad()
def run(arguments: Arguments) -> dict[str, Any]:
    """Measure and print each size and map."""
    check_device(arguments.device)
    results: Rows = []
    for tokens, dim in SIZES:
        generator = torch.Generator().manual_seed(0)
        x, y = (
            normalize(torch.randn(tokens, dim, generator=generator), dim=-1).to(arguments.device)
            for _ in range(2)
        )
        for name, options in MAPS.items():
            row = _measure(options, x, y, arguments.device, arguments.calls)
            results.append({"tokens": tokens, "dim": dim, "map": name, **row})
    print("\n".join(figure.table(results, COLUMNS, 6, 4, -22, 13, 13, 13, 13, 9, 8, 11)))
    return {"device": arguments.device, "draws": DRAWS, "seed": 0, "results": results}


main = figure.file_command(
    run,
    figure.option("--device", default="cpu", help="PyTorch device (cpu, cuda)"),
    figure.option("--calls", type=int, default=200, help="timed calls (default 200)"),
    file="--out",
)
