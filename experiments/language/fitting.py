"""What both studies share: the text, the full softmax's loss, and perplexity."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from experiments.data import ptb, wikitext2
from experiments.data.words import Corpus, frequent
from experiments.language.model import LanguageModel
from experiments.language.settings import LanguageConfig

__all__ = ["check_text", "full_loss", "length_penalty", "perplexity", "text_of"]

_AT_ONCE = 500
_CORPORA = {"wikitext2": wikitext2.load, "ptb": ptb.load}


def text_of(settings: LanguageConfig, data: str | None) -> Corpus:
    """The text, its rare words left out. UserError where it is not found, or damaged."""
    return frequent(_CORPORA[settings.corpus](data), settings.vocabulary)


def check_text(settings: LanguageConfig, data: str | None) -> Corpus:
    """The same. ValueError where it is too short for a step."""
    text = text_of(settings, data)
    least = settings.batch * (settings.span + 1)
    if len(text.train) < least:
        raise ValueError(
            f"batch and span must leave a step to a text of {len(text.train)} tokens, and "
            f"{settings.batch} times {settings.span} + 1 are {least}"
        )
    return text


def length_penalty(settings: LanguageConfig, queries: Tensor, keys: Tensor) -> Tensor:
    """lambda E(|q| - 1)^2 + lambda E(|k| - 1)^2 (Hybrid Random Features, eq 105)."""
    away = [(torch.linalg.vector_norm(u, dim=-1) - 1).square().mean() for u in (queries, keys)]
    return settings.length_penalty * (away[0] + away[1])


def full_loss(
    settings: LanguageConfig, model: LanguageModel, queries: Tensor, targets: Tensor
) -> Tensor:
    """Cross-entropy of the softmax over all words, and the penalty of lengths."""
    loss = functional.cross_entropy(model.logits(queries), targets.flatten())
    if settings.length_penalty:
        loss = loss + length_penalty(settings, queries, model.keys)
    return loss


@torch.no_grad()
def perplexity(model: LanguageModel, queries: Tensor, targets: Tensor) -> float:
    """exp of the cross-entropy in nats."""
    total = torch.zeros((), dtype=torch.float64)
    for part, own in zip(queries.split(_AT_ONCE), targets.split(_AT_ONCE), strict=True):
        total += functional.cross_entropy(model.logits(part), own, reduction="sum").double()
    return math.exp(min(float(total) / len(targets), 700.0))
