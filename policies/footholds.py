"""The foothold head that all controllers share: votes over a grid of offsets become an action.

A safe foothold is not a smooth function of what is seen: beside a gap there is one answer on either
side, and their mean lies in the gap. So controllers vote for offsets, and the winner and its
neighbours are averaged.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ACTION_SIZE", "LEGS", "OFFSETS", "FootholdVotes"]

LEGS = 4
OFFSETS = 25
"""Forward offsets voted on, from -1 to 1 in units of the action."""
ACTION_SIZE = 9
_NEIGHBOURS = 2


@dataclass(frozen=True)
class FootholdVotes:
    """What a controller decides.

    Attributes:
        offsets: (batch, 4, 25) votes for each leg's forward foothold offset, as logits.
        speed: (batch,) lateral body speed, in units of the action.
    """

    offsets: Tensor
    speed: Tensor

    def action(self) -> Tensor:
        """(batch, 9): forward offsets, lateral offsets (none) and lateral speed, in [-1, 1]."""
        grid = torch.linspace(-1, 1, OFFSETS, dtype=self.offsets.dtype, device=self.offsets.device)
        winner = self.offsets.argmax(-1, keepdim=True)
        distance = (torch.arange(OFFSETS, device=winner.device) - winner).abs()
        near = self.offsets.masked_fill(distance > _NEIGHBOURS, -torch.inf)
        forward = near.softmax(-1) @ grid
        lateral = torch.zeros_like(forward)
        speed = self.speed.clamp(-1, 1).unsqueeze(-1)
        return torch.cat((forward, lateral, speed), -1)
