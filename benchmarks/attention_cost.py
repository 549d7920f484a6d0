"""Token scores at the sizes of an implicit attention policy: FLOPs, latency and error.

    python -m benchmarks.attention_cost [--device cuda] [--out attention_cost.json]

Queries and keys are random unit vectors. The error is that of the scores relative to the exact
ones, |s - s*| / |s*|, a mean over draws of the random vectors; `agreement` is the share of the
tokens kept by the exact scores (the top half) that the estimate keeps too.
"""

import statistics
from typing import Any

import torch
from torch import nn

import attention
from experiments import figure
from experiments.figure import Arguments
from training.analysis.agents import check_device
from training.analysis.step_cost import count, median_ms

SIZES = ((96, 4), (96, 8), (1536, 4), (1536, 8))
"""Tokens (patches of 4 x 4 pixels, or pixels, of two 24 x 32 images) and d."""
MAPS: dict[str, dict[str, Any]] = {
    "exact softmax": {},
    "positive m=256": {"name": "positive", "num_features": 256},
    "trig m=256": {"name": "trig", "num_features": 256},
    "hyperbolic m=128": {"name": "hyperbolic", "num_features": 128},
    "angular_hybrid m=n=8": {
        "name": "angular_hybrid",
        "num_features": 8,
        "num_lambda_features": 8,
    },
    "angular_hybrid m=n=4": {
        "name": "angular_hybrid",
        "num_features": 4,
        "num_lambda_features": 4,
    },
}
DRAWS = 10


def _build(options: dict[str, Any], dim: int, seed: int) -> Any:
    return attention.feature_map(dim=dim, seed=seed, **options) if options else (
        attention.ExactSoftmax(dim)
    )  # fmt: skip


def _measure(
    options: dict[str, Any], x: torch.Tensor, y: torch.Tensor, device: str, calls: int
) -> dict[str, Any]:
    exact = attention.ExactSoftmax(x.shape[-1]).token_scores(x.double(), y.double())
    kept = set(exact.topk(len(exact) // 2).indices.tolist())
    errors, agreements = [], []
    for seed in range(DRAWS):
        scores = _build(options, x.shape[-1], seed).to(device).token_scores(x, y).double()
        errors.append(float((scores - exact).norm() / exact.norm()))
        chosen = set(scores.topk(len(kept)).indices.tolist())
        agreements.append(len(chosen & kept) / len(kept))
    scorer = _build(options, x.shape[-1], 0).to(device)
    counted = count(lambda: scorer.token_scores(x, y))
    return {
        "flops": dict(counted.by_component),
        "flops_total": counted.total,
        "latency_ms": median_ms(lambda: scorer.token_scores(x, y), device, calls),
        "relative_error_mean": statistics.mean(errors),
        "agreement_mean": statistics.mean(agreements),
    }


def run(arguments: Arguments) -> dict[str, Any]:
    """Measure and print each size and map."""
    check_device(arguments.device)
    results = []
    print(
        f"{'tokens':>6} {'d':>3}  {'map':<22} {'FLOPs':>12} {'projection':>12} {'exponent.':>12} "
        f"{'score':>12} {'ms':>8} {'error':>7} {'agreement':>10}"
    )
    for tokens, dim in SIZES:
        generator = torch.Generator().manual_seed(0)
        x, y = (
            nn.functional.normalize(torch.randn(tokens, dim, generator=generator), dim=-1)
            for _ in range(2)
        )
        for name, options in MAPS.items():
            with torch.no_grad():
                row = _measure(
                    options, x.to(arguments.device), y.to(arguments.device),
                    arguments.device, arguments.calls,
                )  # fmt: skip
            results.append({"tokens": tokens, "dim": dim, "map": name, **row})
            parts = [row["flops"].get(c, 0) for c in ("projection", "exponentials", "score")]
            print(
                f"{tokens:>6} {dim:>3}  {name:<22} {row['flops_total']:>12,} "
                + " ".join(f"{part:>12,}" for part in parts)
                + f" {row['latency_ms']:>8.3f} {row['relative_error_mean']:>7.1%}"
                f" {row['agreement_mean']:>10.1%}",
                flush=True,
            )
    return {"device": arguments.device, "draws": DRAWS, "seed": 0, "results": results}


main = figure.file_command(
    run,
    figure.option("--device", default="cpu", help="PyTorch device (cpu, cuda)"),
    figure.option("--calls", type=int, default=200, help="timed calls (default 200)"),
    file="--out",
)
