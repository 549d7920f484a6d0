"""Pre-norm Transformer encoder blocks (Xiong et al. 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from experiments import layers
from experiments.layers import AttentionSettings

__all__ = ["Block", "Encoder"]


class Block(nn.Module):
    """Attention, then a feed-forward network, each with a residual connection."""

    def __init__(self, settings: AttentionSettings, width: int, heads: int, mlp_width: int,
                 dropout: float, seed: int) -> None:  # fmt: skip
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = layers.make(settings, width, heads, seed)
        self.mlp = nn.Sequential(
            nn.Linear(width, mlp_width), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp_width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """(batch, tokens, width) -> the same; padding (batch, tokens) is True where none is."""
        x = self.before_attention(tokens)
        tokens = tokens + self.dropout(self.attention(x, x, x, key_padding_mask=padding)[0])
        mixed: Tensor = tokens + self.dropout(self.mlp(self.before_mlp(tokens)))
        return mixed


class Encoder(nn.Module):
    """A stack of blocks, each with separate random vectors."""

    def __init__(self, settings: AttentionSettings, depth: int, width: int, heads: int,
                 mlp_width: int, dropout: float, seed: int) -> None:  # fmt: skip
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(settings, width, heads, mlp_width, dropout, 1000 * seed + layer)
            for layer in range(depth)
        )
        self.last = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """(batch, tokens, width) -> the same; padding (batch, tokens) is True where none is."""
        for block in self.blocks:
            tokens = block(tokens, padding)
        normalised: Tensor = self.last(tokens)
        return normalised
