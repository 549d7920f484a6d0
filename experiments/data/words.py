"""Texts as indices of whitespace-separated words, with `<eos>` at the end of every line.

Indices follow the order of first appearance in the training text.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.data.files import Home, find
from experiments.data.xz import unxz
from training.io.config import UserError

__all__ = ["Corpus", "frequent", "read_corpus"]

EOS, UNKNOWN = "<eos>", "<unk>"
_MOST_BYTES = 2**26
"""Of a text, unpacked."""
_MOST_MEMORY = 2**28
"""Bytes that unpacking may take."""


class Corpus(NamedTuple):
    """A text in three parts."""

    train: Tensor
    """(tokens,), int64."""
    valid: Tensor
    """(tokens,), int64."""
    test: Tensor
    """(tokens,), int64."""
    words: tuple[str, ...]
    """By number."""

    def to(self, device: str) -> Corpus:
        """A copy on a PyTorch device."""
        return Corpus(
            self.train.to(device), self.valid.to(device), self.test.to(device), self.words
        )

    def counts(self) -> Tensor:
        """Count of each word in the training text: (words,), int64."""
        return torch.bincount(self.train, minlength=len(self.words))


def read_corpus(name: str, homes: Mapping[str, Home], folder: str | Path | None) -> Corpus:
    """The parts train, valid and test of `homes`; a word that train lacks becomes `<unk>`.

    Raises UserError if a file is missing or damaged, and for a word that train lacks where
    train has no `<unk>` either.
    """
    texts = {part: _read(find(name, home, folder)) for part, home in homes.items()}
    numbers: dict[str, int] = {}
    train = [numbers.setdefault(word, len(numbers)) for word in texts["train"]]
    unknown = numbers.get(UNKNOWN)
    held_out = []
    for part in ("valid", "test"):
        found = [numbers.get(word, unknown) for word in texts[part]]
        if None in found:
            word = texts[part][found.index(None)]
            raise UserError(
                f"{name}: every word of its {part} text must be in its train text, or that must "
                f"have {UNKNOWN}; {word[:40]!r} is not there"
            )
        held_out.append(torch.tensor(found))
    return Corpus(torch.tensor(train), held_out[0], held_out[1], tuple(numbers))


def frequent(corpus: Corpus, most: int | None) -> Corpus:
    """A copy with only the `most` most frequent words including `<unk>`, which replaces the others.

    None: all of them. Ties keep the earlier words.
    """
    if most is None or len(corpus.words) <= most:
        return corpus
    words = corpus.words if UNKNOWN in corpus.words else (*corpus.words, UNKNOWN)
    counts = torch.bincount(corpus.train, minlength=len(words))
    counts[words.index(UNKNOWN)] = len(corpus.train) + 1
    kept = counts.argsort(descending=True, stable=True)[:most].sort().values
    own = tuple(words[number] for number in kept.tolist())
    new = torch.full((len(words),), own.index(UNKNOWN))
    new[kept] = torch.arange(len(kept))
    return Corpus(new[corpus.train], new[corpus.valid], new[corpus.test], own)


def _read(path: Path) -> list[str]:
    """Words of a file, compressed or not, including line ends."""
    try:
        data = _unpacked(path)
        text = data.decode()
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as text: {error}") from None
    if not text.strip():
        raise UserError(f"{path} must hold a text, and has no word")
    lines = text.removesuffix("\n").split("\n")
    return [word for line in lines for word in (*line.split(), EOS)]


def _unpacked(path: Path) -> bytes:
    """Contents of a file. Raises UserError if it is too large."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data: bytes = file.read(_MOST_BYTES + 1)
    if path.suffix == ".xz":
        data = unxz(data, _MOST_BYTES, _MOST_MEMORY)
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path} must hold at most {_MOST_BYTES} bytes, and holds more")
    return data
