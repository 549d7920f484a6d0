"""Cloning of policies that remember: gradients through steps in their order.

Backpropagation through time, truncated (Williams and Peng 1990): whole episodes, shuffled, stand
one behind the other in lanes; a gradient step goes through the next `sequence` decisions of every
lane, from what was remembered before them, and memory is emptied where an episode begins.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from policies.common.seeing import SeeingPolicy
from training.algorithms.bc_config import BCConfig
from training.algorithms.labelled_walks import Demonstrations

__all__ = ["in_lanes", "judged"]

_STEPS = 256  # decisions validated at once


def in_lanes(
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
def judged(policy: SeeingPolicy, data: Demonstrations, speed_weight: float) -> tuple[float, float]:
    """Mean loss over whole episodes, and the share of the actions' numbers that are near."""
    loss, right, memory = 0.0, 0.0, policy.start(1)
    for index in torch.arange(len(data)).split(_STEPS):
        batch = data[index.unsqueeze(0)]
        assert batch.taken is not None
        assert batch.starts is not None
        decision, memory = policy.unroll(batch.observations, batch.taken, batch.starts, memory)
        actions = batch.actions.flatten(0, 1)
        loss += float(decision.loss(actions, speed_weight)) * len(index)
        right += float(decision.right(actions)) * len(index)
    return loss / len(data), right / len(data)
