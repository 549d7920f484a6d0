"""Texts as indices of whitespace-separated words, with `<eos>` at the end of every line.

Indices follow the order of first appearance in the training text.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.data.files import RemoteFile, find, read_text
from training.io.config import UserError

EOS, UNKNOWN = "<eos>", "<unk>"
_MOST_BYTES = 2**26
"""Size limit of a text, unpacked."""
_WIKITEXT2 = (
    "https://raw.githubusercontent.com/pytorch/examples/"
    "77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2"
)
CORPORA = {
    "wikitext2": {
        part: RemoteFile(f"{_WIKITEXT2}/{part}.txt", sha256, (f"{part}.txt.xz", f"{part}.txt.gz"))
        for part, sha256 in {
            "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        }.items()
    },
    "ptb": {part: RemoteFile(f"ptb.{part}.txt") for part in ("train", "valid", "test")},
}
"""WikiText-2 (Merity et al. 2017): articles of Wikipedia, 2.1 million tokens, 33,278 words; from
PyTorch's language model example, with rare words as `<unk>`. CC BY-SA 3.0.

Penn Treebank as prepared by Mikolov et al. (2010): newspaper articles, 10,000 words. It is licensed
by the Linguistic Data Consortium and has no public URL: the user's folder must have it."""


class Corpus(NamedTuple):
    """A text in three parts."""

    train: Tensor
    """(tokens,), int64."""
    valid: Tensor
    """(tokens,), int64."""
    test: Tensor
    """(tokens,), int64."""
    words: tuple[str, ...]
    """Words, in the order of their token numbers."""

    def to(self, device: str) -> Corpus:
        """A copy on a PyTorch device."""
        train, valid, test = (part.to(device) for part in self[:3])
        return Corpus(train, valid, test, self.words)

    def counts(self) -> Tensor:
        """Count of each word in the training text: (words,), int64."""
        return torch.bincount(self.train, minlength=len(self.words))


@lru_cache(maxsize=1)
def load(name: str, folder: str | Path | None = None) -> Corpus:
    """Load one of `CORPORA`; a word that its train text lacks becomes `<unk>`.

    Raises UserError if a file is missing or damaged, and for a word that train lacks where
    train has no `<unk>` either.
    """
    texts = {part: _read(find(name, file, folder)) for part, file in CORPORA[name].items()}
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
    text = read_text(path, _MOST_BYTES)
    if not text.strip():
        raise UserError(f"{path} must hold text, and has no words")
    lines = text.removesuffix("\n").split("\n")
    return [word for line in lines for word in (*line.split(), EOS)]
