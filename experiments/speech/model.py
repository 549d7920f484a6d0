"""A Conformer encoder (Gulati et al. 2020) with a CTC head: sound in, digits and blanks out."""

import math
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from experiments import layers
from experiments.data.fsdd import RATE_HZ
from experiments.fitting import Fitting
from experiments.layers import TransformerConfig
from experiments.task import STRICT

BLANK = 10
"""The class behind the ten digits: none is said here."""
_WINDOW, _HOP = 256, 80
"""Samples: 32 ms, every 10 ms at 8 kHz."""
_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StringSettings:
    """Strings of digits: recordings of one speaker one after the other, in noise."""

    least_digits: int = Field(default=3, ge=1)
    """Least number of digits of a string."""
    most_digits: int = Field(default=7, ge=1, le=100)
    """Greatest number of digits of a string."""
    most_silence_ms: int = Field(default=150, ge=0, le=10_000)
    """Longest silence before each digit and at the end; it is drawn from 0 to this."""
    least_snr_db: float = Field(default=0.0, ge=-100, le=100)
    """Power of the string over that of white noise."""
    most_snr_db: float = Field(default=10.0, ge=-100, le=100)
    """Drawn uniformly for each string."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.least_digits > self.most_digits:
            raise ValueError(
                f"least_digits must be at most most_digits, {self.most_digits}, "
                f"got {self.least_digits}"
            )
        if self.least_snr_db > self.most_snr_db:
            raise ValueError(
                f"least_snr_db must be at most most_snr_db, {self.most_snr_db}, "
                f"got {self.least_snr_db}"
            )
        return self


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SpeechConfig(TransformerConfig):
    """A Conformer encoder with CTC on strings of the Free Spoken Digit Dataset."""

    fitting: Fitting = Fitting(steps=3000, learning_rate=2e-3, warmup_steps=300, measure_every=500)
    """A step is a batch of new strings."""
    strings: StringSettings = StringSettings()
    """Strings for training and testing."""
    batch: int = Field(default=16, ge=1)
    """Strings of a step."""
    mels: int = Field(default=40, ge=1, le=128)
    """Mel bands of a frame; a frame is 32 ms, every 10 ms."""
    subsample: Literal[1, 2, 4] = 2
    """Frames of a token."""
    width: int = Field(default=64, ge=2, multiple_of=2)
    """Width of a token."""
    heads: int = Field(default=2, ge=1)
    """Attention heads; they divide the width."""
    kernel: int = Field(default=5, ge=1, le=99)
    """Tokens that a block's convolution reaches over; odd."""
    held_out: int = Field(default=5, ge=1)
    """Recordings of each digit and speaker, from index 5 on, that are not learned from; curves are
    measured on strings of them."""
    held_out_strings: int = Field(default=100, ge=1, le=10_000)
    """Number of held-out strings, for the learning curves."""
    test_strings: int = Field(default=500, ge=1, le=10_000)
    """The same for all models."""

    @model_validator(mode="after")
    def _odd(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, got {self.kernel}")
        return self


class LogMel(nn.Module):
    """Frames whose mean is 0 and whose deviation is 1 over a string's frames and bands."""

    window: Tensor
    bank: Tensor

    def __init__(self, mels: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(_WINDOW), persistent=False)
        self.register_buffer("bank", _bank(mels), persistent=False)

    def forward(self, waves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, samples), (batch,) -> frames (batch, frames, mels), zeros behind a string's end,
        and how many each string has, (batch,). Silence after a string has no effect."""
        short = _WINDOW - waves.shape[1]
        waves = nn.functional.pad(waves, (0, max(short, 0)))
        spectrum = torch.stft(waves, _WINDOW, _HOP, window=self.window, center=False,
                              return_complex=True)  # fmt: skip
        power = (spectrum.real.square() + spectrum.imag.square()).mT
        frames = (power @ self.bank + _FLOOR).log()
        counts = 1 + (lengths - _WINDOW).clamp(min=0) // _HOP
        places = torch.arange(frames.shape[1], device=frames.device)
        inside = (places < counts.unsqueeze(1)).unsqueeze(2)
        entries = (counts * frames.shape[2]).reshape(-1, 1, 1)
        mean = frames.where(inside, 0).sum((1, 2), keepdim=True) / entries
        centred = (frames - mean).where(inside, 0)
        deviation = (centred.square().sum((1, 2), keepdim=True) / entries).sqrt()
        return centred / deviation.clamp(min=_FLOOR), counts


def _bank(mels: int) -> Tensor:
    """Triangles (frequencies, mels), even on the mel scale 2595 log10(1 + f / 700 Hz)."""
    top = 2595 * math.log10(1 + RATE_HZ / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
    frequencies = torch.linspace(0, RATE_HZ / 2, _WINDOW // 2 + 1).unsqueeze(1)
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0)


class ConformerBlock(nn.Module):
    """Half a feed-forward network, attention, a convolution, the other half; each with a residual
    connection. The last is normalised.
    """

    def __init__(self, settings: SpeechConfig, seed: int) -> None:
        super().__init__()
        width = settings.width
        self.first, self.second = (_feed_forward(settings) for _ in range(2))
        self.before_attention, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = layers.make(settings.attention, width, settings.heads, seed)
        self.convolution = Convolution(width, settings.kernel)
        self.dropout = nn.Dropout(settings.dropout)

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


def _feed_forward(settings: SpeechConfig) -> nn.Sequential:
    width, hidden = settings.width, settings.mlp_width
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, hidden), nn.SiLU(), nn.Dropout(settings.dropout),
        nn.Linear(hidden, width),
    )  # fmt: skip


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
                ConformerBlock(settings, 1000 * seed + layer) for layer in range(settings.layers)
            )
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
        tokens = tokens + layers.sinusoids(tokens.shape[1], tokens.shape[2]).to(tokens.device)
        for block in self.blocks:
            tokens = block(tokens, padding)
        return self.classify(tokens), counts


def _padding(tokens: Tensor, counts: Tensor) -> Tensor:
    """(batch, tokens): whether a token is after the string's end."""
    return torch.arange(tokens.shape[1], device=counts.device) >= counts.unsqueeze(1)
