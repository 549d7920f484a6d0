"""Behaviour cloning: one round of gradient steps, and its losses.

The policy's head gives the loss (`policies.common.heads`, `policies.footholds.head`). Policies with
memory are trained by truncated backpropagation through time (Williams and Peng 1990): whole
episodes, shuffled, follow each other in lanes; a gradient step goes through the next `sequence`
decisions of every lane, from the memory before them, which is emptied where an episode begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from policies.common.base_policy import SeeingPolicy
from training.algorithms.bc_config import BCConfig
from training.algorithms.feature_maps import OBSERVATIONS, sound
from training.algorithms.labelled_rollouts import Demonstrations
from training.command.errors import NotFiniteError

PART = 16
"""Decisions whose gradient is computed at once: what they need stays in the cache."""
_CHUNK, _CHUNK_IN_ORDER = 1024, 256  # decisions validated per chunk


def learning_rate(peak: float, update: int, updates: int) -> float:
    """Cosine from the peak at the first of a round's updates to zero after the last."""
    return peak * 0.5 * (1 + math.cos(math.pi * update / updates))


def batches(size: int, batch: int, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`count` batches of indices below `size` from shuffled passes, remainders dropped."""
    batch = min(batch, size)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(count):
        if len(order) < batch:
            order = torch.randperm(size, generator=generator)
        yield order[:batch]
        order = order[batch:]


@dataclass(frozen=True)
class Fit:
    """The result of a round of gradient steps."""

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
        NotFiniteError: if a loss or gradient is not finite; the parameters are then unchanged.
    """
    losses, norms = [], []
    parameters = list(policy.parameters())
    made = (
        _in_lanes(policy, data, config, generator)
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
    """A policy's loss; the weight is for policies with `decide`, which custom ones may lack."""
    more = (speed_weight,) if hasattr(policy, "decide") else ()
    loss: Tensor = policy.loss(data.observations, data.actions, generator, *more)
    return loss


@torch.no_grad()
def validate(
    policy: SeeingPolicy, data: Demonstrations, speed_weight: float
) -> tuple[float, float]:
    """Mean loss on demonstrations, and the share of the actions' numbers that are near the
    expert's; NaN for a custom policy without `decide`."""
    if policy.unrolls:
        return _validate_in_order(policy, data, speed_weight)
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


def _in_lanes(
    policy: SeeingPolicy, data: Demonstrations, config: BCConfig,
    generator: torch.Generator,
) -> Iterator[tuple[float, Tensor]]:  # fmt: skip
    """For each update of a round, once its gradient is added to the parameters': the loss, and
    which decisions it is of."""
    steps = min(config.sequence, config.batch_size)
    count = max(1, config.batch_size // steps)
    lanes, starts = _lanes(data, count, steps * config.updates, generator)
    memory = policy.start(count)
    for first in range(0, lanes.shape[1], steps):
        index = lanes[:, first : first + steps]
        batch = data[index]
        assert batch.taken is not None
        decision, memory = policy.unroll(
            batch.observations, batch.taken, starts[:, first : first + steps], memory
        )
        loss = decision.loss(batch.actions.flatten(0, 1), config.speed_weight)
        loss.backward()
        yield loss.item(), index.flatten()


def _lanes(
    data: Demonstrations, count: int, steps: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Decisions (count, steps), whole episodes in shuffled passes, and where one begins; at the
    beginning of a lane one does, whole or not."""
    assert data.starts is not None
    begins = data.starts.nonzero().flatten()
    episodes = [*torch.arange(len(data)).tensor_split(begins[1:])]
    order: list[Tensor] = []
    length = 0
    while length < count * steps:
        for i in torch.randperm(len(episodes), generator=generator).tolist():
            order.append(episodes[i])
            length += len(episodes[i])
    lanes = torch.cat(order)[: count * steps].view(count, steps)
    starts = data.starts[lanes]
    starts[:, 0] = True
    return lanes, starts


@torch.no_grad()
def _validate_in_order(
    policy: SeeingPolicy, data: Demonstrations, speed_weight: float
) -> tuple[float, float]:
    """Mean loss over whole episodes, and the share of the actions' numbers that are near."""
    loss, right, memory = 0.0, 0.0, policy.start(1)
    for index in torch.arange(len(data)).split(_CHUNK_IN_ORDER):
        batch = data[index.unsqueeze(0)]
        assert batch.taken is not None
        assert batch.starts is not None
        decision, memory = policy.unroll(batch.observations, batch.taken, batch.starts, memory)
        actions = batch.actions.flatten(0, 1)
        loss += float(decision.loss(actions, speed_weight)) * len(index)
        right += float(decision.right(actions)) * len(index)
    return loss / len(data), right / len(data)
