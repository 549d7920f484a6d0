"""A Vision Transformer (Dosovitskiy et al. 2021), small."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.encoder import Encoder
from experiments.images.settings import ImagesConfig

__all__ = ["ImageTransformer"]

_CLASSES, _SIDE_PX = 10, 28


class ImageTransformer(nn.Module):
    """Patches as tokens, preceded by a class token."""

    def __init__(self, settings: ImagesConfig, seed: int) -> None:
        """`seed` is the seed of the initial weights and the random vectors. Raises ValueError for
        sizes that do not fit.
        """
        super().__init__()
        side, width = settings.patch_px, settings.width
        if _SIDE_PX % side:
            raise ValueError(f"patch_px must divide {_SIDE_PX}, got {side}")
        self.side, self.mean = side, settings.read == "mean"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Linear(side * side, width)
            self.first = nn.Parameter(0.02 * torch.randn(width))
            self.places = nn.Parameter(0.02 * torch.randn((_SIDE_PX // side) ** 2 + 1, width))
            self.encoder = Encoder(
                settings.attention, settings.layers, width, settings.heads, settings.mlp_width,
                settings.dropout, seed,
            )  # fmt: skip
            self.classify = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 28, 28), uint8 -> logits (batch, 10)."""
        pixels = (images.float() / 255 - 0.2860) / 0.3530  # the training set's mean and deviation
        patches = pixels.unfold(1, self.side, self.side).unfold(2, self.side, self.side)
        tokens = self.embed(patches.flatten(3).flatten(1, 2))
        first = self.first.expand(len(tokens), 1, -1)
        tokens = self.encoder(torch.cat([first, tokens], 1) + self.places)
        logits: Tensor = self.classify(tokens[:, 1:].mean(1) if self.mean else tokens[:, 0])
        return logits
