"""Controllers: dense networks, and recurrent ones between dense layers.

The recurrent layer is a long short-term memory (Hochreiter and Schmidhuber 1997) or a gated
recurrent unit (Cho et al. 2014).
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

_KERNEL = 5
GATES = {"lstm": 4, "gru": 3}
"""Number of gates of each kind that are computed from the input and the state."""


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with normal weights of variance 1/inputs and zero biases."""
    layer: nn.Linear = skip_init(  # leaves the global generator alone
        nn.Linear, inputs, outputs, device=torch.get_default_device()
    )
    if not layer.weight.is_meta:  # on the meta device PyTorch would draw the numbers on the CPU
        nn.init.normal_(layer.weight, std=1 / math.sqrt(inputs), generator=generator)
        nn.init.zeros_(layer.bias)
    return layer


class DenseController(nn.Module):
    """Hidden layers with tanh, and a linear one; without hidden layers a linear map.

    Args:
        inputs: number of inputs: the attention output and the normalised vector.
        outputs: number of outputs, which the action head reads.
        hidden: widths of the hidden layers.
        generator: source of the initial parameters.
    """

    def __init__(
        self, inputs: int, outputs: int, hidden: tuple[int, ...], generator: torch.Generator
    ) -> None:
        super().__init__()
        widths = (inputs, *hidden, outputs)
        self.layers = nn.ModuleList()
        self.layers.extend(linear(*pair, generator) for pair in pairwise(widths))

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


class ConvController(nn.Module):
    """Two convolutions along the columns of images, given as the means of their rows and columns,
    then dense layers that also receive the other inputs.

    Args:
        images: number of images times their channels.
        rows: rows of an image.
        columns: columns of an image.
        inputs: number of inputs: means of rows, means of columns, and the normalised vector.
        outputs: number of outputs, which the action head reads.
        hidden: channels of the convolutions, then widths of the hidden layers.
        generator: source of the initial parameters.
    """

    def __init__(
        self, images: int, rows: int, columns: int, inputs: int, outputs: int,
        hidden: tuple[int, ...], generator: torch.Generator,
    ) -> None:  # fmt: skip
        super().__init__()
        self._images, channels = images, hidden[0]
        self._sizes = images * rows, images * columns, inputs - images * (rows + columns)
        self.convolutions = nn.ModuleList()
        for before in (images, channels):
            kernel = linear(before * _KERNEL, channels, generator)
            layer = skip_init(
                nn.Conv1d, before, channels, _KERNEL, padding=_KERNEL // 2,
                device=torch.get_default_device(),
            )  # fmt: skip
            layer.weight = nn.Parameter(kernel.weight.view(channels, before, _KERNEL))
            layer.bias = kernel.bias
            self.convolutions.append(layer)
        rest = inputs - images * columns + channels * columns
        self.dense = DenseController(rest, outputs, hidden[1:], generator)

    @property
    def output(self) -> nn.Linear:
        """The layer that the head reads."""
        return self.dense.output

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs) -> (batch, outputs)."""
        rows, columns, vector = x.split(self._sizes, -1)
        seen = columns.unflatten(-1, (self._images, -1))
        for layer in self.convolutions:
            seen = torch.relu(layer(seen))
        found: Tensor = self.dense(torch.cat((rows, seen.flatten(1), vector), -1))
        return found


class RecurrentController(nn.Module):
    """Hidden layers with tanh, a recurrent one, and a linear one.

    Args:
        kind: "lstm" or "gru".
        inputs: number of inputs.
        outputs: number of outputs, which the action head reads.
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
            linear(before, after, generator) for before, after in pairwise((inputs, *hidden[:-1]))
        )
        gates = GATES[kind] * self.width
        self.input = linear((inputs, *hidden[:-1])[-1], gates, generator)
        self.memory = linear(self.width, gates, generator)
        self.output = linear(self.width, outputs, generator)
        if kind == "lstm":
            with torch.no_grad():  # the cell keeps its content at first
                self.input.bias[self.width : 2 * self.width] = 1.0

    @property
    def state_size(self) -> int:
        """Size of the recurrent state."""
        return 2 * self.width if self.kind == "lstm" else self.width

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, inputs), (batch, state_size) -> (batch, outputs), the next state.

        The state is zero at the beginning of an episode.
        """
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
