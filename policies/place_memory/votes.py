"""Foothold votes by a small template over the memory, the same for every leg and offset.

As `policies.footholds.vote`, but the profile that the template slides over is read from a memory
of places.
There are 23 parameters, few enough for evolution strategies to learn from scratch.
"""

import torch
from torch import Tensor, nn

from policies.common.geometry import Footholds
from policies.footholds.head import OFFSETS
from policies.footholds.vote import between_taps, template_votes
from policies.place_memory.config import CUE, PlaceMemoryConfig

__all__ = ["PlaceVotes"]


class PlaceVotes(nn.Module):
    """Template votes for the footholds, and the lateral speed from the cue and the robot's motion.

    Args:
        config: the policy's settings.
        footholds: footholds of the robot.

    Raises:
        ValueError: for reads whose spacing differs from the offsets, or too few reads.
    """

    interpolate: Tensor
    offsets: Tensor

    def __init__(self, config: PlaceMemoryConfig, footholds: Footholds) -> None:
        super().__init__()
        apart_m = 2 * footholds.reach_m / (OFFSETS - 1)
        if abs(config.spacing_m - apart_m) > 1e-6 or config.reads < OFFSETS + 2:
            raise ValueError(
                f"spacing_m must be {apart_m:.4g} and reach_m at least "
                f"{footholds.reach_m + apart_m:.4g} with the controller vote, whose offsets are so "
                f"far apart, got {config.spacing_m} and {config.reach_m}"
            )
        self.footholds, self.reads = footholds, config.reads
        interpolate = between_taps(config.reads - OFFSETS + 1)
        self.template = nn.Parameter(torch.zeros(interpolate.shape[1]))
        self.prior = nn.Parameter(torch.zeros(2))
        self.edges = nn.Parameter(torch.zeros(CUE // 2))
        self.balance = nn.Parameter(torch.zeros(3))
        self.register_buffer("interpolate", interpolate, persistent=False)
        self.register_buffer("offsets", torch.linspace(-1, 1, OFFSETS), persistent=False)

    def forward(self, given: Tensor) -> Tensor:
        """Inputs: reads of each leg, cue and normalised proprioception (batch, k)
        -> votes of each leg, and the lateral speed last (batch, legs 25 + 1)."""
        legs = self.footholds.legs
        sizes = [legs * self.reads, CUE, CUE]
        reads, holes, _, proprio = given.split([*sizes, given.shape[1] - sum(sizes)], -1)
        template = self.interpolate @ self.template
        profile = reads.unflatten(-1, (legs, self.reads))
        votes = template_votes(profile, template, self.prior, self.offsets)
        left = holes[:, CUE // 2 :] - holes[:, : CUE // 2].flip(-1)
        roll, _, yaw = proprio[:, self.footholds.attitude].unbind(-1)
        own = torch.stack([roll, yaw, proprio[:, self.footholds.velocity][:, 1]], -1)
        speed = left @ self.edges + 0.3 * (own @ self.balance)
        return torch.cat((votes.flatten(1), speed.unsqueeze(-1)), -1)
