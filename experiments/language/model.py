"""A language model: an LSTM whose outputs are queries and whose word vectors are the keys.

The LSTM reads the same vectors (tied: Inan et al. 2017; Press and Wolf 2017), and no bias is added:
the softmax is one of dot products alone (Hybrid Random Features, appendix I).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.language.settings import LanguageConfig

__all__ = ["LanguageModel", "columns_of", "queries_over", "span_of"]

_COLUMNS, _SPAN = 10, 64
"""How a text is read to measure, as the published code does."""


class LanguageModel(nn.Module):
    """It keeps the LSTM's state between steps, so that reading continues."""

    memory: Tensor
    """(2, layers, batch, width): h and c after the last step."""

    def __init__(self, settings: LanguageConfig, words: int, seed: int) -> None:
        """`seed` is the seed of the initial weights."""
        super().__init__()
        width, self.layers = settings.width, settings.layers
        self.temperature = settings.temperature
        between = settings.dropout if settings.layers > 1 else 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Embedding(words, width)
            nn.init.uniform_(self.embed.weight, -0.1, 0.1)
            self.lstm = nn.LSTM(width, width, settings.layers, dropout=between)
        self.dropout = nn.Dropout(settings.dropout)
        self.register_buffer("memory", self.blank(settings.batch))

    @property
    def keys(self) -> Tensor:
        """Vectors of all words, (words, width)."""
        return self.embed.weight

    def blank(self, batch: int) -> Tensor:
        """The initial memory, (2, layers, batch, width)."""
        size = (2, self.layers, batch, self.lstm.hidden_size)
        return torch.zeros(size, device=self.keys.device)

    def forward(self, tokens: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(span, batch) and a memory -> queries (span, batch, width) and the memory after them."""
        found, state = self.lstm(self.dropout(self.embed(tokens)), (memory[0], memory[1]))
        return self.dropout(found), torch.stack(state)

    def read_on(self, tokens: Tensor, anew: bool) -> Tensor:
        """The next tokens (span, batch) -> queries (span * batch, width), starting from the last
        memory or from the initial one.
        """
        before = torch.zeros_like(self.memory) if anew else self.memory
        queries, after = self(tokens, before)
        self.memory = after.detach()
        return queries.flatten(0, 1)

    def logits(self, queries: Tensor) -> Tensor:
        """tau q.k: (n, width) -> (n, words)."""
        return self.temperature * queries @ self.keys.mT


def columns_of(text: Tensor, batch: int) -> Tensor:
    """A text (tokens,) as `batch` parallel segments: (tokens / batch, batch)."""
    length = len(text) // batch
    return text[: length * batch].view(batch, length).mT


def span_of(columns: Tensor, step: int, span: int) -> tuple[Tensor, Tensor, bool]:
    """The input of a step (span, batch), counted from 1, the next words, and whether the text
    starts there.
    """
    place = (step - 1) % ((len(columns) - 1) // span) * span
    return columns[place : place + span], columns[place + 1 : place + span + 1], place == 0


@torch.no_grad()
def queries_over(model: LanguageModel, text: Tensor) -> tuple[Tensor, Tensor]:
    """Queries (n, width) over a text (tokens,) and the next words (n,), in order."""
    columns = columns_of(text, min(_COLUMNS, len(text) // 2))
    memory, found = model.blank(columns.shape[1]), []
    for part in columns[:-1].split(_SPAN):
        queries, memory = model(part, memory)
        found.append(queries)
    return torch.cat(found).transpose(0, 1).flatten(0, 1), columns[1:].mT.flatten()
