"""Settings and measures of speech models."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from experiments.fitting import Fitting
from experiments.layers import AttentionSettings
from experiments.task import Measure, Task

__all__ = ["SPEECH", "SpeechConfig", "StringSettings"]

_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
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


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SpeechConfig:
    """A Conformer encoder with CTC on strings of the Free Spoken Digit Dataset."""

    attention: AttentionSettings = AttentionSettings()
    """Of all layers."""
    fitting: Fitting = Fitting(steps=3000, learning_rate=2e-3, warmup_steps=300, measure_every=500)
    """A step is a batch of new strings."""
    strings: StringSettings = StringSettings()
    """To learn from and to test on."""
    batch: int = Field(default=16, ge=1)
    """Strings of a step."""
    mels: int = Field(default=40, ge=1, le=128)
    """Mel bands of a frame; a frame is 32 ms, every 10 ms."""
    subsample: Literal[1, 2, 4] = 2
    """Frames of a token."""
    layers: int = Field(default=3, ge=1)
    """Conformer blocks."""
    width: int = Field(default=64, ge=2, multiple_of=2)
    """Numbers of a token."""
    heads: int = Field(default=2, ge=1)
    """Attention heads; they divide the width."""
    mlp_width: int = Field(default=128, ge=1)
    """Of each half feed-forward's hidden layer."""
    kernel: int = Field(default=5, ge=1, le=99)
    """Tokens that a block's convolution reaches over; odd."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of activations left out in training."""
    held_out: int = Field(default=5, ge=1)
    """Recordings of each digit and speaker, from index 5 on, that are not learned from; curves are
    measured on strings of them."""
    held_out_strings: int = Field(default=100, ge=1, le=10_000)
    """For curves."""
    test_strings: int = Field(default=500, ge=1, le=10_000)
    """The same for all models."""

    @model_validator(mode="after")
    def _odd(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, got {self.kernel}")
        return self


SPEECH = Task(
    name="speech",
    settings=SpeechConfig,
    module="experiments.speech.learning",
    measures=(
        Measure("wer", "word error rate", "% of the digits of test strings",
                higher_is_better=False, form=".2f"),
        Measure("loss", "test loss", "nats a digit, CTC", higher_is_better=False),
        Measure("attention_flops", "attention, FLOPs", "the test string of median length",
                higher_is_better=False, form=",.0f"),
        Measure("flops", "model, FLOPs", "the same, from log-mel frames on",
                higher_is_better=False, form=",.0f"),
    ),
)  # fmt: skip
