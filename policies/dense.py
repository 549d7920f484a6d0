"""The paper's own controller: the attended image into a small dense network."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from policies.footholds import LEGS, OFFSETS, FootholdVotes
from policies.normaliser import RunningNormaliser

__all__ = ["DenseController"]


class DenseController(nn.Module):
    """Attended values and normalised proprioception through hidden layers to votes.

    Args:
        num_values: numbers that attention hands over.
        proprio: numbers of proprioception.
        hidden: widths of the hidden layers.
        normaliser: of proprioception.
        generator: source of the initial parameters.
    """

    def __init__(
        self,
        num_values: int,
        proprio: int,
        hidden: tuple[int, ...],
        normaliser: RunningNormaliser,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.normaliser = [normaliser]  # not a submodule: the policy owns it
        widths = (num_values + proprio, *hidden, LEGS * OFFSETS + 1)
        self.layers = nn.ModuleList()
        for inputs, outputs in pairwise(widths):
            layer = skip_init(nn.Linear, inputs, outputs)  # leaves the global generator alone
            nn.init.normal_(layer.weight, std=1 / math.sqrt(inputs), generator=generator)
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)

    def forward(self, values: Tensor, proprio: Tensor) -> FootholdVotes:
        """Values (batch, ...) and proprioception (batch, 45) -> votes."""
        x = torch.cat((values.flatten(1), self.normaliser[0](proprio)), -1)
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        x = self.layers[-1](x)
        return FootholdVotes(x[:, :-1].view(-1, LEGS, OFFSETS), x[:, -1])
