"""WikiText-2 (Merity et al. 2017): articles of Wikipedia, 2.1 million tokens, 33,278 words.

CC BY-SA 3.0. The text of PyTorch's language model example, with rare words as `<unk>`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from experiments.data.files import Home
from experiments.data.words import Corpus, read_corpus

__all__ = ["load"]

NAME = "wikitext2"
_URL = (
    "https://raw.githubusercontent.com/pytorch/examples/"
    "77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2"
)


def _home(part: str, sha256: str) -> Home:
    return Home(f"{_URL}/{part}.txt", sha256, (f"{part}.txt.xz", f"{part}.txt.gz"))


HOMES = {
    "train": _home("train", "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "valid": _home("valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
    "test": _home("test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}


@lru_cache(maxsize=1)
def load(folder: str | Path | None = None) -> Corpus:
    """Load the whole text, or the text in a folder. Raises UserError if it is not found, or
    damaged.
    """
    return read_corpus(NAME, HOMES, folder)
