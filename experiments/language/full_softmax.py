"""The softmax over all words: its loss, the length penalty, and perplexity."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from experiments.language.model import LanguageModel
from experiments.language.settings import LanguageConfig

__all__ = ["full_loss", "length_penalty", "perplexity"]

_AT_ONCE = 500


def length_penalty(settings: LanguageConfig, queries: Tensor, keys: Tensor) -> Tensor:
    """lambda E(|q| - 1)^2 + lambda E(|k| - 1)^2 (Hybrid Random Features, eq 105)."""
    away = [(torch.linalg.vector_norm(u, dim=-1) - 1).square().mean() for u in (queries, keys)]
    return settings.length_penalty * (away[0] + away[1])


def full_loss(
    settings: LanguageConfig, model: LanguageModel, queries: Tensor, targets: Tensor
) -> Tensor:
    """Cross-entropy of the softmax over all words plus the length penalty."""
    loss = functional.cross_entropy(model.logits(queries), targets.flatten())
    if settings.length_penalty:
        loss = loss + length_penalty(settings, queries, model.keys)
    return loss


@torch.no_grad()
def perplexity(model: LanguageModel, queries: Tensor, targets: Tensor) -> float:
    """exp of the cross-entropy in nats."""
    total = torch.zeros((), dtype=torch.float64, device=queries.device)
    for part, own in zip(queries.split(_AT_ONCE), targets.split(_AT_ONCE), strict=True):
        total += functional.cross_entropy(model.logits(part), own, reduction="sum").double()
    return math.exp(min(float(total) / len(targets), 700.0))
