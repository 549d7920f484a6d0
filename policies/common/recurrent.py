"""Controllers that remember: a long short-term memory (Hochreiter and Schmidhuber 1997) or a gated
recurrent unit (Cho et al. 2014) between dense layers."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

__all__ = ["GATES", "RecurrentController"]

GATES = {"lstm": 4, "gru": 3}
"""How many gates of each kind are computed from the input and the state."""


class RecurrentController(nn.Module):
    """Hidden layers with tanh, a recurrent one, and a linear one.

    Args:
        kind: "lstm" or "gru".
        inputs: numbers that it is given.
        outputs: numbers that the head of the actions reads.
        hidden: widths; the last is the recurrent layer's.
        generator: source of the initial parameters.
    """

    def __init__(
        self,
        kind: str,
        inputs: int,
        outputs: int,
        hidden: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.kind, self.width = kind, hidden[-1]
        self.layers = nn.ModuleList(
            _linear(before, after, generator) for before, after in pairwise((inputs, *hidden[:-1]))
        )
        gates = GATES[kind] * self.width
        self.input = _linear((inputs, *hidden[:-1])[-1], gates, generator)
        self.memory = _linear(self.width, gates, generator)
        self.output = _linear(self.width, outputs, generator)
        if kind == "lstm":
            with torch.no_grad():  # to begin with, what is remembered stays
                self.input.bias[self.width : 2 * self.width] = 1.0

    @property
    def state_size(self) -> int:
        """Numbers that are remembered."""
        return 2 * self.width if self.kind == "lstm" else self.width

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, inputs) and (batch, state_size), zeros at first -> (batch, outputs) and what is
        remembered from now on."""
        for layer in self.layers:
            x = torch.tanh(layer(x))
        step = self._lstm if self.kind == "lstm" else self._gru
        hidden, state = step(self.input(x), state)
        return self.output(hidden), state

    def _lstm(self, given: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cell = state.chunk(2, -1)
        enter, keep, new, show = (given + self.memory(hidden)).chunk(4, -1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = show.sigmoid() * cell.tanh()
        return hidden, torch.cat((hidden, cell), -1)

    def _gru(self, given: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        (reset, update, new), (old_reset, old_update, old) = (
            gates.chunk(3, -1) for gates in (given, self.memory(state))
        )
        candidate = (new + (reset + old_reset).sigmoid() * old).tanh()
        keep = (update + old_update).sigmoid()
        hidden = keep * state + (1 - keep) * candidate
        return hidden, hidden


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs)  # leaves the global generator alone
    nn.init.normal_(layer.weight, std=1 / math.sqrt(inputs), generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
