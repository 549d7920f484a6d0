"""Recognition of spoken strings of digits."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from experiments.data import fsdd
from experiments.fitting import fit, load_model
from experiments.layers import is_of_map, prepare_step
from experiments.measuring import flops_of
from experiments.speech.model import BLANK, SpeechModel
from experiments.speech.scoring import greedy, word_errors
from experiments.speech.settings import SpeechConfig
from experiments.speech.strings import TEST_TAKES, Strings, Voices, draw, voices
from experiments.task import Learning

__all__ = ["check", "learn", "loss_of"]

_TRAINING, _HELD_OUT, _TEST = 1, 2, 3
"""First numbers of the seeds that strings are drawn with."""
_MEASURED_AT_ONCE = 25


def check(settings: SpeechConfig, data: str | None) -> None:
    """UserError where recordings are missing, ValueError where settings do not fit."""
    _parts(data, settings.held_out)
    SpeechModel(settings, 0)


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it on the test strings, which are the same for all models."""
    settings: SpeechConfig = learning.settings
    training, held_out, test = _parts(learning.data, settings.held_out)
    curves = draw(held_out, settings.held_out_strings, settings.strings, _generator(_HELD_OUT))
    curves = curves.to(learning.device)
    model = SpeechModel(settings, learning.seed).to(learning.device)
    if learning.start is not None:
        load_model(learning.start, model, is_of_map)

    def batch(step: int) -> Strings:
        generator = _generator(_TRAINING, learning.seed, step)
        return draw(training, settings.batch, settings.strings, generator).to(learning.device)

    def loss(step: int) -> Tensor:
        return loss_of(model, batch(step))[0]

    def before(step: int) -> None:
        prepare_step(
            model, settings.attention, learning.seed, step,
            lambda: loss_of(model, batch(step)),
        )  # fmt: skip

    def measure() -> dict[str, float]:
        return _measured(model, curves)

    fit(
        model, loss, settings.fitting, learning.folder, learning.seed, measure, before,
        learning.label,
    )  # fmt: skip
    strings = draw(test, settings.test_strings, settings.strings, _generator(_TEST))
    strings = strings.to(learning.device)
    middle = int(strings.lengths.argsort()[len(strings.lengths) // 2])
    one = strings.part(middle, middle + 1)
    frames = model.log_mel(one.waves[:, : int(one.lengths)], one.lengths)
    total, attending = flops_of(lambda: model.encode(*frames))
    return _measured(model, strings) | {"attention_flops": attending, "flops": total}


def loss_of(model: SpeechModel, strings: Strings) -> tuple[Tensor, list[list[int]]]:
    """CTC's loss (Graves et al. 2006) in nats a digit, averaged over strings; and the model's
    transcript of each.
    """
    logits, counts = model(strings.waves, strings.lengths)
    by_token = logits.log_softmax(-1).transpose(0, 1)
    loss = functional.ctc_loss(by_token, strings.digits, counts, strings.counts, blank=BLANK)
    return loss, greedy(logits, counts)


@torch.no_grad()
def _measured(model: SpeechModel, strings: Strings) -> dict[str, float]:
    loss, heard = 0.0, []
    for first in range(0, len(strings.waves), _MEASURED_AT_ONCE):
        part = strings.part(first, first + _MEASURED_AT_ONCE)
        mean, words = loss_of(model, part)
        loss += float(mean) * len(words)
        heard += words
    return {"wer": word_errors(strings.spoken(), heard), "loss": loss / len(heard)}


@lru_cache(maxsize=2)
def _parts(data: str | None, held_out: int) -> tuple[Voices, Voices, Voices]:
    """Disjoint recordings for training, for curves and for the test."""
    recordings, first = fsdd.load(data), TEST_TAKES + held_out
    return (
        voices(recordings, lambda take: take >= first, "learn from"),
        voices(recordings, lambda take: TEST_TAKES <= take < first, "hold out"),
        voices(recordings, lambda take: take < TEST_TAKES, "test"),
    )


def _generator(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
