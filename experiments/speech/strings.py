"""Strings of digits from recordings of one speaker, determined by a generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.data.fsdd import RATE_HZ, Recording
from experiments.task import STRICT
from training.io.config import UserError

TEST_TAKES = 5
"""Takes 0 to 4 of each digit and speaker are the data set's own test."""
_DIGITS = 10

Samples = NDArray[np.int16]
Voices = tuple[tuple[tuple[Samples, ...], ...], ...]
"""Of each speaker, of each digit, all recordings."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StringSettings:
    """Strings of digits: recordings of one speaker one after the other, in noise."""

    least_digits: int = Field(default=3, ge=1)
    """Of a string."""
    most_digits: int = Field(default=7, ge=1, le=100)
    """Of a string."""
    most_silence_ms: int = Field(default=150, ge=0, le=10_000)
    """Before each digit and at the end, drawn from none to this."""
    least_snr_db: float = Field(default=0.0, ge=-100, le=100)
    """Power of the string over that of white noise."""
    most_snr_db: float = Field(default=10.0, ge=-100, le=100)
    """Drawn for each string, evenly."""

    @model_validator(mode="after")
    def _possible(self) -> StringSettings:
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


class Strings(NamedTuple):
    """A batch."""

    waves: Tensor
    """(batch, samples), zeros behind the end of a string; a string's root mean square is 1."""
    lengths: Tensor
    """(batch,), samples."""
    digits: Tensor
    """(batch, most digits), zeros behind the end."""
    counts: Tensor
    """(batch,), digits."""

    def to(self, device: str) -> Strings:
        """A copy on a PyTorch device."""
        return Strings(*(values.to(device) for values in self))

    def part(self, first: int, last: int) -> Strings:
        """The strings `first` to `last` - 1."""
        return Strings(*(values[first:last] for values in self))

    def spoken(self) -> list[list[int]]:
        """The digits of each string."""
        pairs = zip(self.digits.tolist(), self.counts.tolist(), strict=True)
        return [digits[:count] for digits, count in pairs]


def voices(recordings: Sequence[Recording], wanted: Callable[[int], bool], part: str) -> Voices:
    """The recordings with a wanted take, of all speakers.

    Raises UserError, which names the `part`, where a speaker lacks a digit.
    """
    speakers = sorted({recording.speaker for recording in recordings})
    found: dict[str, list[list[Samples]]] = {s: [[] for _ in range(_DIGITS)] for s in speakers}
    for recording in recordings:
        if wanted(recording.take):
            found[recording.speaker][recording.digit].append(recording.samples)
    for speaker in speakers:
        for digit, own in enumerate(found[speaker]):
            if not own:
                raise UserError(
                    f"fsdd must have recordings of every digit and speaker to {part}, and "
                    f"{speaker} lacks the digit {digit}"
                )
    return tuple(tuple(tuple(own) for own in found[speaker]) for speaker in speakers)


def draw(
    of: Voices, count: int, settings: StringSettings, generator: np.random.Generator
) -> Strings:
    """`count` strings, whose speakers, digits, recordings, silences and noise are drawn."""
    spoken, waves = [], []
    for _ in range(count):
        speaker = of[generator.integers(len(of))]
        number = generator.integers(settings.least_digits, settings.most_digits + 1)
        digits = generator.integers(_DIGITS, size=number)
        waves.append(_wave(speaker, digits.tolist(), settings, generator))
        spoken.append(digits)
    return Strings(
        pad_sequence([torch.from_numpy(wave) for wave in waves], True),
        torch.tensor([len(wave) for wave in waves]),
        pad_sequence([torch.from_numpy(digits) for digits in spoken], True),
        torch.tensor([len(digits) for digits in spoken]),
    )


def _wave(
    speaker: Sequence[Sequence[Samples]], digits: Sequence[int], settings: StringSettings,
    generator: np.random.Generator,
) -> NDArray[np.float32]:  # fmt: skip
    """The samples (samples,) of one string, including noise."""
    most = settings.most_silence_ms * RATE_HZ // 1000
    silences = generator.integers(most + 1, size=len(digits) + 1)
    parts = [np.zeros(silences[0], np.float32)]
    for digit, silence in zip(digits, silences[1:], strict=True):
        takes = speaker[digit]
        parts.append(takes[int(generator.integers(len(takes)))].astype(np.float32))
        parts.append(np.zeros(silence, np.float32))
    clean = np.concatenate(parts)
    snr_db = generator.uniform(settings.least_snr_db, settings.most_snr_db)
    power = float(np.mean(clean**2)) * 10 ** (-snr_db / 10)
    noise = generator.standard_normal(len(clean), np.float32)
    noisy = clean + np.float32(power**0.5) * noise
    scaled: NDArray[np.float32] = noisy / np.float32(np.sqrt(np.mean(noisy**2)))
    return scaled
