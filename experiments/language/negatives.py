"""Sampled softmax: sampled words in place of all, and the resulting loss.

Weights of all words are computed for each token here, O(words F): at these sizes a matrix product.
A tree of sums of features (Rawat et al. 2019) draws a word in O(F log words) instead, with the same
distribution but for the clipping of negative estimates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from experiments.language.distances import shares

__all__ = ["Drawn", "draw", "sampled_loss"]


class Drawn(NamedTuple):
    """Sampled words for n tokens."""

    words: Tensor
    """(n, negatives)."""
    log_chance: Tensor
    """(n, negatives), of each in a draw among all words."""
    log_true: Tensor
    """(n, 1), of the true word."""


@torch.no_grad()
def draw(
    weights: Tensor, targets: Tensor, negatives: int, generator: torch.Generator,
    uniform: float = 0.0, among_all: bool = True,
) -> Drawn:  # fmt: skip
    """Sample words in proportion to their weights, with replacement.

    Args:
        weights: (n, words), negative ones clipped to 0.
        targets: (n,), true words.
        negatives: how many.
        generator: random generator of the draws.
        uniform: share of uniform sampling, which gives words of weight 0 a positive probability.
        among_all: whether to sample among all words or only among those other than the true one.
    """
    own = targets.unsqueeze(-1)
    chances = (1 - uniform) * shares(weights) + uniform / weights.shape[-1]
    drawable = chances if among_all else chances.scatter(-1, own, 0.0)
    words = torch.multinomial(drawable, negatives, replacement=True, generator=generator)
    return Drawn(words, chances.gather(-1, words).log(), chances.gather(-1, own).log())


def sampled_loss(
    queries: Tensor, keys: Tensor, targets: Tensor, drawn: Drawn, temperature: float,
    correct_true: bool,
) -> Tensor:  # fmt: skip
    """Cross-entropy of the true word among the sampled ones, with logits corrected for their
    probabilities q.

    Args:
        queries: (n, d).
        keys: (words, d).
        targets: (n,), true words.
        drawn: the sampled words.
        correct_true: all logits lose log q, and words are drawn among all: the best logits are then
            those of the full softmax (Jean et al. 2015), as by Bayes' rule they tell the true word
            from those drawn. Or the drawn ones alone lose log(negatives q), and they and q are
            among the others: the sum of exponentials is then without bias that of all words (Rawat
            et al. 2019), its logarithm is not, and words more frequent than drawn ones come out
            too likely.
    """
    true = temperature * (queries * functional.embedding(targets, keys)).sum(-1, keepdim=True)
    others = temperature * (functional.embedding(drawn.words, keys) @ queries.unsqueeze(-1))
    others = others.squeeze(-1) - drawn.log_chance
    if correct_true:
        true = true - drawn.log_true
    else:
        others = others + torch.log1p(-drawn.log_true.exp()) - math.log(drawn.words.shape[-1])
    return (torch.cat([true, others], -1).logsumexp(-1) - true.squeeze(-1)).mean()
