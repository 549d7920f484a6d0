"""Behaviour cloning: one round of gradient steps, and what it came to.

The policy's head gives the loss (`policies.common.heads`, `policies.footholds.head`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from policies.common.seeing import SeeingPolicy
from training.algorithms.bc_config import BCConfig
from training.algorithms.labelled_walks import Demonstrations
from training.algorithms.map_fitting import OBSERVATIONS, sound
from training.algorithms.sequences import in_lanes, judged
from training.command.errors import NotFiniteError

__all__ = ["Fit", "batches", "fit", "learning_rate", "validate"]

PART = 16
"""Decisions whose gradient is computed at once: what they need stays in the cache."""
_CHUNK = 1024  # decisions validated at once


def learning_rate(peak: float, update: int, updates: int) -> float:
    """Cosine from the peak at the first of a round's updates to zero after the last."""
    return peak * 0.5 * (1 + math.cos(math.pi * update / updates))


def batches(size: int, batch: int, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`count` batches of indices below `size`: shuffled passes, what is left of one dropped."""
    batch = min(batch, size)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(count):
        if len(order) < batch:
            order = torch.randperm(size, generator=generator)
        yield order[:batch]
        order = order[batch:]


@dataclass(frozen=True)
class Fit:
    """What a round of gradient steps came to."""

    loss: float
    """Mean over the round's batches."""
    grad_norm: float
    """Mean length of the gradient before clipping."""


def fit(
    policy: SeeingPolicy, optimiser: torch.optim.Optimizer,
    data: Demonstrations, config: BCConfig, iteration: int, generator: torch.Generator,
    part_size: int = PART,
) -> Fit:  # fmt: skip
    """Train a policy on demonstrations for one round, in place, `part_size` decisions at once.

    Its feature maps are fitted to its queries and keys after update `fit_after` of all rounds.

    Raises:
        NotFiniteError: when a loss or gradient is not finite, before it reaches the parameters.
    """
    losses, norms = [], []
    parameters = list(policy.parameters())
    made = (
        in_lanes(policy, data, config, generator)
        if policy.unrolls
        else _in_parts(policy, data, config, generator, part_size)
    )
    optimiser.zero_grad()
    for update, (loss, index) in enumerate(made):
        losses.append(loss)
        norm = nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        norms.append(norm.item())
        if not (math.isfinite(losses[-1]) and math.isfinite(norms[-1])):
            raise NotFiniteError(
                f"batch {update + 1} of iteration {iteration} has loss {losses[-1]} and gradient "
                f"norm {norms[-1]}, where finite numbers are needed; the last checkpoint is "
                "intact (a lower learning_rate may help)"
            )
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config.learning_rate, update, config.updates)
        optimiser.step()
        if (iteration - 1) * config.updates + update + 1 == config.fit_after:
            with sound():
                policy.fit_attention(data[index[:OBSERVATIONS]].observations)
        optimiser.zero_grad()
    return Fit(sum(losses) / len(losses), sum(norms) / len(norms))


def _in_parts(
    policy: SeeingPolicy, data: Demonstrations, config: BCConfig,
    generator: torch.Generator, part_size: int,
) -> Iterator[tuple[float, Tensor]]:  # fmt: skip
    """For each update of a round, once its gradient is added to the parameters': the loss, and
    which decisions it is of."""
    for index in batches(len(data), config.batch_size, config.updates, generator):
        total = 0.0
        for part in index.split(part_size):
            batch = data[part]
            loss = loss_of(policy, batch, generator, config.speed_weight)
            loss = loss * (len(part) / len(index))
            loss.backward()
            total += loss.item()
        yield total, index


def loss_of(
    policy: Any, data: Demonstrations, generator: torch.Generator, speed_weight: float
) -> Tensor:
    """A policy's loss; the weight is of policies that decide, not of the user's own."""
    more = (speed_weight,) if hasattr(policy, "decide") else ()
    loss: Tensor = policy.loss(data.observations, data.actions, generator, *more)
    return loss


@torch.no_grad()
def validate(
    policy: SeeingPolicy, data: Demonstrations, speed_weight: float
) -> tuple[float, float]:
    """Mean loss on demonstrations, and the share of the actions' numbers that are near the
    expert's; NaN where a policy of the user's own does not say what it decided."""
    if policy.unrolls:
        return judged(policy, data, speed_weight)
    loss, right = 0.0, 0.0 if hasattr(policy, "decide") else math.nan
    generator = torch.Generator().manual_seed(0)
    for index in torch.arange(len(data)).split(_CHUNK):
        batch = data[index]
        if not hasattr(policy, "decide"):
            loss += float(loss_of(policy, batch, generator, speed_weight)) * len(index)
            continue
        decision = policy.decide(batch.observations)
        loss += float(decision.loss(batch.actions, speed_weight)) * len(index)
        right += float(decision.right(batch.actions)) * len(index)
    return loss / len(data), right / len(data)
