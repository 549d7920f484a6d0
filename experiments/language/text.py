"""The training text of a language model."""

from __future__ import annotations

from experiments.data import ptb, wikitext2
from experiments.data.words import Corpus, frequent
from experiments.language.settings import LanguageConfig

__all__ = ["check_text", "text_of"]

_CORPORA = {"wikitext2": wikitext2.load, "ptb": ptb.load}


def text_of(settings: LanguageConfig, data: str | None, device: str = "cpu") -> Corpus:
    """Load the text without its rare words. Raises UserError if it is not found, or damaged."""
    return frequent(_CORPORA[settings.corpus](data), settings.vocabulary).to(device)


def check_text(settings: LanguageConfig, data: str | None) -> Corpus:
    """Load the text. Raises ValueError if it is too short for a step."""
    text = text_of(settings, data)
    least = settings.batch * (settings.span + 1)
    if len(text.train) < least:
        raise ValueError(
            f"batch and span must leave a step to a text of {len(text.train)} tokens, and "
            f"{settings.batch} times {settings.span} + 1 are {least}"
        )
    return text
