"""Recognition of spoken strings of digits, which are drawn from recordings of one speaker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from experiments.data import fsdd
from experiments.data.fsdd import RATE_HZ, Recording
from experiments.learning import FLOPS, flops_of, train
from experiments.speech.model import BLANK, SpeechConfig, SpeechModel, StringSettings
from experiments.task import Learning, Measure, Task
from training.io.config import UserError

TEST_TAKES = 5
"""Takes 0 to 4 of each digit and speaker are the data set's own test."""
_DIGITS = 10

Samples = NDArray[np.int16]
Voices = tuple[tuple[tuple[Samples, ...], ...], ...]
"""All recordings of each digit of each speaker."""
_TRAINING, _HELD_OUT, _TEST = 1, 2, 3
"""First numbers of the seeds that strings are drawn with."""
_MEASURED_AT_ONCE = 25


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
    """The recordings with the wanted indices, of all speakers.

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

    def batch(step: int) -> Strings:
        generator = _generator(_TRAINING, learning.seed, step)
        return draw(training, settings.batch, settings.strings, generator).to(learning.device)

    def loss(step: int) -> Tensor:
        return loss_of(model, batch(step))[0]

    train(learning, model, loss, loss, lambda: _measured(model, curves))
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


def greedy(scores: Tensor, counts: Tensor) -> list[list[int]]:
    """Digits of (batch, tokens, 11) scores, of which each string has counts (batch,): the best
    class of each token, runs of one class taken as one, without blanks (Graves et al. 2006)."""
    best = scores.argmax(-1).cpu()
    return [
        [digit for digit in own[:count].unique_consecutive().tolist() if digit != BLANK]
        for own, count in zip(best, counts.tolist(), strict=True)
    ]


def edit_distance(said: Sequence[int], heard: Sequence[int]) -> int:
    """Smallest number of insertions, deletions and substitutions between two sequences
    (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            changed = before + (word != other)
            before = row[j]
            row[j] = min(changed, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def word_errors(said: Sequence[Sequence[int]], heard: Sequence[Sequence[int]]) -> float:
    """Word error rate, %: all edits, by all words that were said. It can exceed 100."""
    pairs = zip(said, heard, strict=True)
    return 100 * sum(edit_distance(a, b) for a, b in pairs) / sum(map(len, said))


_STRING = "the test string of median length"
SPEECH = Task(
    name="speech",
    settings=SpeechConfig,
    learn=learn,
    check=check,
    measures=(
        Measure("wer", "word error rate", "% of the digits of test strings", ".2f"),
        Measure("loss", "test loss", "nats a digit, CTC"),
        Measure("attention_flops", "attention, FLOPs", _STRING, FLOPS),
        Measure("flops", "model, FLOPs", "the same, from log-mel frames on", FLOPS),
    ),
)
