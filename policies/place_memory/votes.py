"""Foothold votes by a small template over the memory, the same for every leg and offset.

As `policies.footholds.vote`, but the profile that the template slides over is read from a memory
of places.
There are 23 parameters, few enough for evolution strategies to learn from scratch.
"""

import torch
from torch import Tensor

from policies.common.geometry import Footholds
from policies.footholds.head import OFFSETS
from policies.footholds.vote import TemplateVotes
from policies.place_memory.config import CUE, PlaceMemoryConfig


class PlaceVotes(TemplateVotes):
    """Template votes for the footholds, and the lateral speed from the cue and the robot's motion.

    Args:
        config: the policy's settings.
        footholds: footholds of the robot.

    Raises:
        ValueError: for reads whose spacing differs from the offsets, or too few reads.
    """

    def __init__(self, config: PlaceMemoryConfig, footholds: Footholds) -> None:
        apart_m = 2 * footholds.reach_m / (OFFSETS - 1)
        if abs(config.spacing_m - apart_m) > 1e-6 or config.reads < OFFSETS + 2:
            raise ValueError(
                f"spacing_m must be {apart_m:.4g} and reach_m at least "
                f"{footholds.reach_m + apart_m:.4g} with the controller vote, whose offsets are so "
                f"far apart, got {config.spacing_m} and {config.reach_m}"
            )
        super().__init__(footholds, config.reads - OFFSETS + 1, CUE // 2)
        self.reads = config.reads

    def forward(self, given: Tensor) -> Tensor:
        """Inputs: reads of each leg, cue and normalised proprioception (batch, k)
        -> votes of each leg, and the lateral speed last (batch, legs 25 + 1)."""
        legs = self.footholds.legs
        sizes = [legs * self.reads, CUE, CUE]
        reads, holes, _, proprio = given.split([*sizes, given.shape[1] - sum(sizes)], -1)
        votes = self._votes(reads.unflatten(-1, (legs, self.reads)))
        left = holes[:, CUE // 2 :] - holes[:, : CUE // 2].flip(-1)
        speed = left @ self.edges + self._balanced(proprio)
        return torch.cat((votes.flatten(1), speed.unsqueeze(-1)), -1)
