"""Penn Treebank as prepared by Mikolov et al. (2010): newspaper articles, 10,000 words.

It is licensed by the Linguistic Data Consortium and has no public home: the user's folder must have
ptb.train.txt, ptb.valid.txt and ptb.test.txt.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from experiments.data.files import Home
from experiments.data.words import Corpus, read_corpus

__all__ = ["load"]

NAME = "ptb"
HOMES = {part: Home(f"ptb.{part}.txt") for part in ("train", "valid", "test")}


@lru_cache(maxsize=1)
def load(folder: str | Path | None = None) -> Corpus:
    """Load the text from the folder. Raises UserError if it is not found, or damaged."""
    return read_corpus(NAME, HOMES, folder)
