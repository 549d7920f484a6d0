"""Hybrids' attention with and without their outer products: time, side by side.

    python -m benchmarks.outer_products [--quick]

Four heads, one CPU thread, unit queries and keys in d dimensions, values of dv = d: a batch with
gradients, and one sequence without. Both ways are timed in turn; figures are medians over rounds.
`attend` makes no outer products where values are shorter than T, the length of f.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

import attention
from attention import streaming
from experiments import figure
from experiments.figure import Arguments
from experiments.timing import in_turn, medians

SIZES = ((16, 16, 1), (16, 8, 1), (16, 8, 2), (16, 8, 8), (16, 16, 16), (8, 8, 8), (64, 24, 1))
"""d, m, n"""
LENGTH = 101
"""Tokens of the small sweeping preset."""
HEADS, BATCH = 4, 64


def _by_outer_products(features: attention.FeatureMap, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    prepared = streaming.prepared(features, x, y, v, causal=False, key_mask=None)
    assert prepared is not None  # there are queries
    return streaming.bidirectional(features, prepared)


def _with_gradients(attend: Callable[..., Tensor], inputs: Sequence[Tensor]) -> None:
    leaves = [t.detach().requires_grad_() for t in inputs]
    attend(*leaves).sum().backward()


def _without(attend: Callable[..., Tensor], inputs: Sequence[Tensor]) -> None:
    with torch.no_grad():
        attend(*inputs)


def both_ways(dim: int, m: int, n: int, rounds: int) -> list[tuple[str, float, float]]:
    """Return name, ms with and ms without outer products: a batch with gradients, one sequence."""
    features = attention.feature_map("angular_hybrid", dim, m, num_lambda_features=n, heads=HEADS)
    found = []
    for name, batch, run in (("training", BATCH, _with_gradients), ("inference", 1, _without)):
        generator = torch.Generator().manual_seed(1)
        x, y, v = torch.randn(3, batch, HEADS, LENGTH, dim, generator=generator)
        inputs = [t / t.norm(dim=-1, keepdim=True) for t in (x, y)] + [v]
        ways: dict[str, Callable[..., Tensor]]
        ways = {"made": partial(_by_outer_products, features), "not made": features.attend}
        calls = {way: partial(run, attend, inputs) for way, attend in ways.items()}
        rounds_of = rounds if batch > 1 else 10 * rounds
        times = medians(in_turn(calls, rounds_of, time.perf_counter))
        found.append((name, times["made"], times["not made"]))
    return found


def run(arguments: Arguments) -> None:
    """Time all sizes and print them."""
    head = f"{'d = dv':>6} {'m':>4} {'n':>4} {'T':>4}  {'':10} {'made, ms':>10} {'not made':>10}"
    print(head)
    for dim, m, n in SIZES[:1] if arguments.quick else SIZES:
        for name, made, not_made in both_ways(dim, m, n, 2 if arguments.quick else 9):
            print(
                f"{dim:6} {m:4} {n:4} {4 * m:4}  {name:10} {made:10.2f} {not_made:10.2f}"
                f"  {made / not_made:.2f} times",
                flush=True,
            )


main = figure.file_command(
    run, figure.option("--quick", action="store_true", help="one size, rougher figures")
)
