"""Which search finds the action of least energy in 12 dimensions: the choice behind the policy's.

    python -m experiments.robots.action_search [--out DIR] [--seed S] [--quick]

Demonstrations are synthetic, so that the right answers are known: eight dimensions follow the
context, two are constant, and two have one of two values, the second of which depends on the first.
Each head is trained on them for the same number of steps; each search then finds the action. Errors
are distances to the nearer of the two right actions, in percent of the range."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from experiments import figure
from experiments.figure import Arguments, Lines, Row, Rows
from policies.vision_performer.action_search import (
    autoregressive,
    derivative_free,
    langevin,
    stratified,
    uniform,
)
from policies.vision_performer.energy import AutoregressiveEnergy, JointEnergy, Regression

CONTEXT, SIZE = 16, 12
_KINDS = {"smooth": slice(0, 8), "constant": slice(8, 10), "two values": slice(10, 12)}
COLUMNS = (*_KINDS, "all", "ms", "parameters")
_BLUR = 0.005

Search = Callable[[Any, Tensor, torch.Generator], Tensor]
"""(head, contexts (batch, 16), generator) -> actions (batch, 12)."""


def right_actions(context: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Both right actions (batch, 12) for contexts (batch, 16)."""
    smooth = 0.8 * torch.tanh(context @ weights)
    still = torch.zeros(len(context), 2)
    return tuple(  # type: ignore[return-value]
        torch.cat((smooth, still, 0.6 * side + still[:, :1], 0.3 * side + 0.2 * smooth[:, :1]), -1)
        for side in (-1, 1)
    )


def demonstrations(count: int, weights: Tensor, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Contexts (count, 16) and one right action (count, 12) for each, by the toss of a coin."""
    context = torch.randn(count, CONTEXT, generator=source)
    first, second = right_actions(context, weights)
    coin = torch.rand(count, 1, generator=source) < 0.5
    return context, torch.where(coin, first, second)


def train(
    head: nn.Module, steps: int, batch: int, weights: Tensor, source: torch.Generator
) -> None:
    """Train with Adam and a cosine schedule of the learning rate."""
    optimiser = torch.optim.Adam(head.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        context, actions = demonstrations(batch, weights, source)
        optimiser.zero_grad()
        head.loss(context, actions, source).backward()  # type: ignore[operator]
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def errors(found: Tensor, context: Tensor, weights: Tensor) -> dict[str, float]:
    """Mean distance to the nearer right action, percent of the range, by kind of dimension."""
    first, second = ((found - right).abs() for right in right_actions(context, weights))
    nearer = (first.sum(-1) < second.sum(-1)).unsqueeze(-1)
    percent = 50 * torch.where(nearer, first, second).mean(0)
    kinds = {name: float(percent[part].mean()) for name, part in _KINDS.items()}
    return {**kinds, "all": float(percent.mean())}


def autoregressive_search(head: Any, context: Tensor, source: torch.Generator) -> Tensor:
    """128 candidates and two rounds a dimension, as the policy's default."""
    part = head.context_part(context)

    def candidates() -> Tensor:
        return stratified((len(context), 128), source, context)

    def energy(i: int, chosen: Tensor, values: Tensor) -> Tensor:
        return head.energy(i, part, chosen, values)

    return autoregressive(energy, SIZE, candidates, 2, 0.05, 0.25, source)


def derivative_free_search(head: Any, context: Tensor, source: torch.Generator) -> Tensor:
    """2,048 candidates, three rounds, noise 0.33 halved (Florence et al. 2021, appendix B.1)."""
    part = head.context_part(context)
    start = uniform((len(context), 2048, SIZE), source, context)
    return derivative_free(lambda a: head.energy(part, a), start, 3, 0.33, source)


def langevin_search(head: Any, context: Tensor, source: torch.Generator) -> Tensor:
    """128 chains of 100 steps, 0.1 to 1e-5, then as many small ones (appendix B.3)."""
    part = head.context_part(context)
    start = uniform((len(context), 128, SIZE), source, context)
    return langevin(lambda a: head.energy(part, a), start, 100, 0.1, 1e-5, source)


def regression(head: Any, context: Tensor, source: torch.Generator) -> Tensor:
    """The action of a head without energy."""
    return head(context)


@torch.no_grad()
def found_by(head: nn.Module, search: Search, weights: Tensor, seed: int, contexts: int) -> Row:
    """Errors on some contexts, and the time of a search for one."""
    context, _ = demonstrations(contexts, weights, torch.Generator().manual_seed(seed + 2))
    source = torch.Generator().manual_seed(seed + 3)
    found = torch.cat([search(head, part, source) for part in context.split(20)])
    began = time.perf_counter()
    timed = context[:5].split(1)
    for one in timed:
        search(head, one, source)
    took_ms = 1000 / len(timed) * (time.perf_counter() - began)
    size = sum(parameter.numel() for parameter in head.parameters())
    return {**errors(found, context, weights), "ms": took_ms, "parameters": size}


def measure(arguments: Arguments) -> Rows:
    """One row per search."""
    steps, batch, contexts = (10, 8, 1) if arguments.quick else (1500, 128, 100)
    seed = arguments.seed

    def generator(more: int = 0) -> torch.Generator:
        return torch.Generator().manual_seed(seed + more)

    weights = torch.randn(CONTEXT, 8, generator=generator()) / 4
    rows: Rows = []
    joint = {"langevin": langevin_search, "derivative-free": derivative_free_search}
    both = (CONTEXT, SIZE, (256, 256))
    first = AutoregressiveEnergy(CONTEXT, SIZE, (64, 64), 64, _BLUR, generator())
    heads: list[tuple[nn.Module, dict[str, Search]]]
    heads = [(first, {"autoregressive": autoregressive_search})]
    for name, chain in (("joint", 0), ("joint, chain negatives", 10)):
        named: dict[str, Search] = {f"{name}, {kind}": search for kind, search in joint.items()}
        heads.append((JointEnergy(*both, 64, _BLUR, chain, generator()), named))
    heads.append((Regression(*both, generator()), {"explicit": regression}))
    for head, searches in heads:
        train(head, steps, batch, weights, generator(1))
        for name, search in searches.items():
            rows.append({"search": name, **found_by(head, search, weights, seed, contexts)})
    return rows


def show(rows: Rows) -> Lines:
    """Errors, time and size by search."""
    head = {"search": "{search}", **{key: f"{{{key}:.4g}}" for key in COLUMNS}}
    yield from figure.table(rows, head, 40, 12)


def draw(rows: Rows) -> Any:
    """Bars of the mean error by search, % of the action's range."""
    return figure.bars(rows, "search", ("all",), "log")


main = figure.command(measure, show, draw)
