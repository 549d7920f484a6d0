"""The paper's own controller: what attention hands on into a small dense network."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

__all__ = ["DenseController"]


class DenseController(nn.Module):
    """Hidden layers with tanh, and a linear one; without hidden layers a linear map.

    Args:
        inputs: numbers that it is given: what attention hands on and the normalised vector.
        outputs: numbers that the head of the actions reads.
        hidden: widths of the hidden layers.
        generator: source of the initial parameters.
    """

    def __init__(
        self, inputs: int, outputs: int, hidden: tuple[int, ...], generator: torch.Generator
    ) -> None:
        super().__init__()
        widths = (inputs, *hidden, outputs)
        self.layers = nn.ModuleList()
        for before, after in pairwise(widths):
            layer = skip_init(nn.Linear, before, after)  # leaves the global generator alone
            nn.init.normal_(layer.weight, std=1 / math.sqrt(before), generator=generator)
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)

    @property
    def output(self) -> nn.Linear:
        """The layer that the head reads."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        return last

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs) -> (batch, outputs)."""
        *hidden, last = self.layers  # a slice would build a new list of modules
        for layer in hidden:
            x = torch.tanh(layer(x))
        found: Tensor = last(x)
        return found
