"""Networks as memories of what was felt: meta-trained controls, useless before training.

They are trained over episodes in which the meaning of appearances is drawn anew, as in Santoro,
Bartunov, Botvinick, Wierstra and Lillicrap, Meta-Learning with Memory-Augmented Neural Networks.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from policies.felt_ground.memories import FeltMemory, Ring, Samples
from policies.felt_ground.memory_config import FeltMemoryConfig

_WIDTH = 128  # of the layers around the GRU
_HEADS, _LAYERS = 4, 2
_LONG = 64.0  # samples: unit of ages


class Hidden(NamedTuple):
    """State of the GRU, (batch, hidden)."""

    hidden: Tensor


class GruFelt(FeltMemory):
    """A GRU over samples; a query and its state give the log odds that ground gives way."""

    def __init__(self, config: FeltMemoryConfig, dim: int) -> None:
        super().__init__(config, dim)
        d, h = self.width, config.hidden
        self.inputs = nn.Linear(2 * d + 1, _WIDTH)
        self.gru = nn.GRU(_WIDTH, h, batch_first=True)
        self.of_state, self.of_query = nn.Linear(h, _WIDTH), nn.Linear(d, _WIDTH)
        self.outputs = nn.Sequential(
            nn.Linear(h + d + _WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1)
        )

    @property
    def numbers(self) -> int:
        return self.config.hidden

    def initial_state(self, batch: int) -> Hidden:
        return Hidden(self.inputs.weight.new_zeros(batch, self.config.hidden))

    def logits(self, keys: Tensor, values: Tensor, times: Tensor, queries: Tensor) -> Tensor:
        """Log odds at queries (batch, n, d), each after `times` (n,) of the samples (batch, L, .):
        (batch, n)."""
        states, _ = self.gru(self._inputs(self._projected(keys), values))
        states = torch.cat((torch.zeros_like(states[:, :1]), states), 1)
        return self._odds(states[:, times], self._projected(queries))

    def _inputs(self, keys: Tensor, values: Tensor) -> Tensor:
        return self.inputs(torch.cat((keys, keys * values, values), -1)).tanh()

    def _odds(self, states: Tensor, queries: Tensor) -> Tensor:
        both = self.of_state(states) * self.of_query(queries)
        return self.outputs(torch.cat((states, queries, both), -1)).squeeze(-1)

    def _taken(self, state: Hidden, key: Tensor, value: Tensor, gate: Tensor) -> Hidden:
        token = self._inputs(key, value.unsqueeze(-1)).unsqueeze(1)
        return Hidden(self.gru(token, state.hidden.unsqueeze(0).contiguous())[1][0])

    def _recalled(self, state: Hidden, queries: Tensor) -> Tensor:
        states = state.hidden.unsqueeze(1).expand(-1, queries.shape[1], -1)
        return (self._odds(states, queries) / 2).tanh()


class TransformerFelt(Ring):
    """A Transformer over the kept samples and, each by itself, a query: log odds as of GruFelt."""

    def __init__(self, config: FeltMemoryConfig, dim: int) -> None:
        super().__init__(config, dim)
        width = config.hidden
        if width % _HEADS:
            raise ValueError(f"hidden must be a multiple of {_HEADS} for transformer, got {width}")
        self.inputs = nn.Linear(self.width + 3, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, _HEADS, 2 * width, 0.0, batch_first=True, norm_first=True
            )
            for _ in range(_LAYERS)
        )  # fmt: skip
        self.outputs = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def logits(self, keys: Tensor, values: Tensor, times: Tensor, queries: Tensor) -> Tensor:
        """As `GruFelt.logits`; all queries after the same number of samples, `times` (n,)."""
        count = int(times[0])
        ages = torch.arange(count - 1, -1, -1, device=keys.device).expand(len(keys), count)
        there = torch.ones_like(ages, dtype=torch.bool)
        kept = self._projected(keys[:, :count]), values[:, :count, 0]
        return self._odds(*kept, ages, there, self._projected(queries))

    def _odds(
        self, keys: Tensor, values: Tensor, ages: Tensor, there: Tensor, queries: Tensor
    ) -> Tensor:
        count, asked = keys.shape[1], queries.shape[1]
        facts = torch.stack((values, ages / _LONG, torch.ones_like(values)), -1)
        samples = torch.cat((keys, facts), -1)
        asks = functional.pad(queries, (0, 3))
        hidden = self.inputs(torch.cat((samples, asks), 1))
        # Samples see samples, a query sees them and itself.
        seen = torch.cat((there, there.new_zeros(len(there), asked)), 1).unsqueeze(1)
        own = torch.eye(count + asked, dtype=torch.bool, device=keys.device)
        mask = ~(seen | own).repeat_interleave(_HEADS, 0)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask)
        return self.outputs(hidden[:, count:]).squeeze(-1)

    def _recalled(self, state: Samples, queries: Tensor) -> Tensor:
        ages, there = self._ages(state)
        return (self._odds(state.keys, state.values, ages, there, queries) / 2).tanh()
