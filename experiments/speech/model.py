"""A Conformer encoder with a CTC head: sound in, digits and blanks out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.speech.conformer import ConformerBlock
from experiments.speech.log_mel import LogMel
from experiments.speech.settings import SpeechConfig

__all__ = ["BLANK", "SpeechModel"]

BLANK = 10
"""The class behind the ten digits: none is said here."""


class SpeechModel(nn.Module):
    """Log-mel frames, fewer tokens by convolutions of stride 2, places, Conformer blocks."""

    def __init__(self, settings: SpeechConfig, seed: int) -> None:
        """`seed` is the seed of the initial weights and the random vectors. Raises ValueError for
        sizes that do not fit.
        """
        super().__init__()
        width = settings.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.log_mel = LogMel(settings.mels)
            self.embed = nn.Linear(settings.mels, width)
            self.shorten = nn.ModuleList(
                nn.Conv1d(width, width, 3, stride=2, padding=1)
                for _ in range(settings.subsample // 2)
            )
            self.blocks = nn.ModuleList(
                ConformerBlock(
                    settings.attention, width, settings.heads, settings.mlp_width, settings.kernel,
                    settings.dropout, 1000 * seed + layer,
                )
                for layer in range(settings.layers)
            )  # fmt: skip
            self.classify = nn.Linear(width, BLANK + 1)

    def forward(self, waves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, samples), (batch,) -> logits (batch, tokens, 11) and how many tokens
        each string has, (batch,)."""
        return self.encode(*self.log_mel(waves, lengths))

    def encode(self, frames: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The logits for log-mel frames (batch, frames, mels), of which each string has counts."""
        tokens = self.embed(frames)
        for convolution in self.shorten:
            tokens = tokens.masked_fill(_padding(tokens, counts).unsqueeze(2), 0)
            tokens = functional.silu(convolution(tokens.mT).mT)
            counts = (counts + 1) // 2
        padding = _padding(tokens, counts)
        tokens = tokens + _places(tokens.shape[1], tokens.shape[2]).to(tokens.device)
        for block in self.blocks:
            tokens = block(tokens, padding)
        return self.classify(tokens), counts


def _padding(tokens: Tensor, counts: Tensor) -> Tensor:
    """(batch, tokens): whether a token is after the string's end."""
    return torch.arange(tokens.shape[1], device=counts.device) >= counts.unsqueeze(1)


def _places(count: int, width: int) -> Tensor:
    """Sines and cosines (count, width) of wavelengths from 2 pi to 2 pi 10,000 tokens (Vaswani et
    al. 2017)."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], 1)
