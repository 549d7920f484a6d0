"""Conformer blocks (Gulati et al. 2020), with any attention of the experiments."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from experiments import layers
from experiments.layers import AttentionSettings

__all__ = ["ConformerBlock"]


class ConformerBlock(nn.Module):
    """Half a feed-forward network, attention, a convolution, the other half; each with a residual
    connection. The last is normalised.
    """

    def __init__(self, settings: AttentionSettings, width: int, heads: int, mlp_width: int,
                 kernel: int, dropout: float, seed: int) -> None:  # fmt: skip
        super().__init__()
        self.first, self.second = (_feed_forward(width, mlp_width, dropout) for _ in range(2))
        self.before_attention, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = layers.make(settings, width, heads, seed)
        self.convolution = Convolution(width, kernel)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same; padding (batch, tokens) is True where none is."""
        tokens = tokens + 0.5 * self.dropout(self.first(tokens))
        x = self.before_attention(tokens)
        tokens = tokens + self.dropout(self.attention(x, x, x, key_padding_mask=padding)[0])
        tokens = tokens + self.dropout(self.convolution(tokens, padding))
        normalised: Tensor = self.last(tokens + 0.5 * self.dropout(self.second(tokens)))
        return normalised


class Convolution(nn.Module):
    """A gate, a convolution of each channel over `kernel` tokens, and a mixture of the channels.

    It normalises tokens where the paper normalises batches, so that padding has no effect.
    """

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.gate, self.mix = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.along = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same."""
        x = functional.glu(self.gate(self.before(tokens))).masked_fill(padding.unsqueeze(-1), 0)
        x = self.along(x.mT).mT
        mixed: Tensor = self.mix(functional.silu(self.between(x)))
        return mixed


def _feed_forward(width: int, mlp_width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, mlp_width), nn.SiLU(), nn.Dropout(dropout),
        nn.Linear(mlp_width, width),
    )  # fmt: skip
