"""Words drawn in place of all, and the loss that they give (Rawat et al. 2019; Blanc and Rendle
2018).

Weights of all words are made for each token here, O(words F): at these sizes a matrix product. A
tree of sums of features draws a word in O(F log words) instead, with the same distribution but
for the clipping of negative estimates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from experiments.language.distances import shares

__all__ = ["Drawn", "draw", "sampled_loss"]

Drawn = tuple[Tensor, Tensor]
"""Words (n, negatives), and the logarithm of each one's probability (n, negatives)."""


@torch.no_grad()
def draw(weights: Tensor, targets: Tensor, negatives: int, generator: torch.Generator) -> Drawn:
    """Words in proportion to their weights, with repetition, never the true one.

    weights (n, words), negative ones taken as 0; targets (n,).
    """
    own = targets.unsqueeze(-1)
    chances = shares(weights.scatter(-1, own, 0.0)).scatter(-1, own, 0.0)
    chances = chances / chances.sum(-1, keepdim=True)
    words = torch.multinomial(chances, negatives, replacement=True, generator=generator)
    return words, chances.gather(-1, words).log()


def sampled_loss(
    queries: Tensor, keys: Tensor, targets: Tensor, drawn: Drawn, temperature: float
) -> Tensor:
    """Cross-entropy of the true word among the drawn ones, their logits less log(negatives times
    probability): the sum of their exponentials is then without bias that of all words.

    queries (n, d), keys (words, d), targets (n,).
    """
    words, log_chance = drawn
    true = temperature * (queries * functional.embedding(targets, keys)).sum(-1, keepdim=True)
    others = functional.embedding(words, keys) @ queries.unsqueeze(-1)
    corrected = temperature * others.squeeze(-1) - log_chance - math.log(words.shape[-1])
    return (torch.cat([true, corrected], -1).logsumexp(-1) - true.squeeze(-1)).mean()
