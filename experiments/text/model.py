"""A Transformer encoder that classifies by the first token or the mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.data.listops import PADDING, VOCABULARY
from experiments.encoder import Encoder
from experiments.text.settings import ListopsConfig

__all__ = ["TextTransformer"]

_CLASSES = 10


class TextTransformer(nn.Module):
    """Tokens and their places, blocks, and what is classified."""

    places: Tensor
    """(longest, width)"""

    def __init__(self, settings: ListopsConfig, seed: int) -> None:
        """`seed` is the seed of the initial weights and the random vectors. Raises ValueError for
        sizes that do not fit.
        """
        super().__init__()
        self.first = settings.read == "first"
        width = settings.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Embedding(len(VOCABULARY), width, padding_idx=PADDING)
            self.encoder = Encoder(
                settings.attention, settings.layers, width, settings.heads, settings.mlp_width,
                settings.dropout, seed,
            )  # fmt: skip
            self.classify = nn.Linear(width, _CLASSES)
        places = _sinusoids(settings.grammar.longest, width)
        self.register_buffer("places", places, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) of places in the vocabulary -> logits (batch, 10)."""
        padding = tokens == PADDING
        given = self.embed(tokens) + self.places[: tokens.shape[1]]
        read = self.encoder(given, padding)
        if self.first:
            whole = read[:, 0]
        else:
            whole = read.masked_fill(padding.unsqueeze(-1), 0.0).sum(1)
            whole = whole / (~padding).sum(1, keepdim=True)
        logits: Tensor = self.classify(whole)
        return logits


def _sinusoids(count: int, width: int) -> Tensor:
    """(count, width): Vaswani et al. 2017, section 3.5."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], 1)
