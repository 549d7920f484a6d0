"""Weights of all words for a query, and words sampled by them in place of all.

Weights are exact, estimated by random features, or independent of the query. Weights of all words
are computed for each token here, O(words F): at these sizes a matrix product. A tree of sums of
features (Rawat et al. 2019) draws a word in O(F log words) instead, with the same distribution but
for the clipping of negative estimates.
"""

import math
from typing import NamedTuple

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

import attention
from experiments.layers import MapSettings
from experiments.task import STRICT

_KEYS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ProposalSettings(MapSettings):
    """The approximation of the softmax over all words.

    Further names of `feature_map` are uniform, equal weights, and unigram, the frequencies of words
    in the text."""

    projection: str = "iid"
    """Coupling of the random vectors: iid, orthogonal, simplex, ..."""


class Proposal(nn.Module):
    """Weights of all words for a query, up to a factor per query; estimates can be negative.

    Exact weights are exp(q.k), a feature map estimates them by phi(q).phi(k), and those of uniform
    and unigram are the same for every query.
    """

    same: Tensor | None
    """(words,), weights that are the same for every query; None: they depend on it."""
    feature_map: attention.FeatureMap | None
    """None: there are no estimates."""
    features: int
    """F, numbers of the vectors whose product a weight is; 0: none."""

    def __init__(self, settings: ProposalSettings, width: int, counts: Tensor, seed: int) -> None:
        """`width` is the dimension d of queries and keys, `counts` (words,) has how often the text
        has each word, `seed` is of the random vectors. Raises ValueError for an unknown map or
        option.
        """
        super().__init__()
        name = settings.feature_map
        same = {"uniform": torch.ones_like(counts), "unigram": counts}.get(name)
        self.register_buffer("same", None if same is None else same.float(), persistent=False)
        self.feature_map, self.features = None, width if same is None else 0
        if name != "softmax" and same is None:
            self.feature_map = attention.feature_map(
                name, width, settings.num_features, projection=settings.projection, seed=seed,
                **settings.map_options,
            )  # fmt: skip
            self.features = self.feature_map.output_dim

    def fit(self, queries: Tensor, keys: Tensor) -> None:
        """Set the parameters that depend on queries and keys (n, d)."""
        if self.feature_map is not None:
            self.feature_map.fit(queries, keys)

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(n, d) and (words, d) -> (n, words)."""
        if self.same is not None:
            return self.same.expand(len(queries), -1)
        if self.feature_map is None:
            return exact_weights(queries, keys)
        # Features keep their scale apart, and that of the largest key is left out.
        phi = self.feature_map.scaled_queries(queries).mantissa
        products, scales = [], []
        for part in keys.split(_KEYS_AT_ONCE):
            own = self.feature_map.scaled_keys(part)
            products.append(phi @ own.mantissa.mT)
            scales.append(own.log_scale.mT)
        scale = torch.cat(scales, -1)
        return torch.cat(products, -1).mul_((scale - scale.amax()).exp())


def exact_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """exp(q.k) for (n, d) and (words, d): (n, words), the largest of each row 1."""
    logits = queries @ keys.mT
    return (logits - logits.amax(-1, keepdim=True)).exp()


def shares(weights: Tensor) -> Tensor:
    """(n, words), negatives as 0, over the sum of each row; a row with none above 0 is uniform."""
    positive = weights.clamp(min=0)
    total = positive.sum(-1, keepdim=True)
    return torch.where(total > 0, positive, 1.0) / torch.where(total > 0, total, weights.shape[-1])


def distances(exact: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Two distributions (n, words) -> 1d-Wasserstein and Kolmogorov-Smirnov distances (n,).

    Both are of differences between cumulative distributions, and so depend on the words' order:
    their sum is the 1d-Wasserstein distance, in words, and their largest the Kolmogorov-Smirnov
    distance (Hybrid Random Features, section 4.2).
    """
    away = (exact.double() - other.double()).cumsum(-1).abs()
    return away.sum(-1), away.amax(-1)


class Drawn(NamedTuple):
    """Sampled words for n tokens."""

    words: Tensor
    """(n, negatives)."""
    log_chance: Tensor
    """(n, negatives), logarithm of the probability of each in a draw among all words."""
    log_true: Tensor
    """(n, 1), logarithm of the true word's probability."""


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
            those of the full softmax (Jean et al. 2015), because by Bayes' rule they distinguish
            the true word from the drawn ones. Or the drawn ones alone lose log(negatives q), and
            they and q are among the others: the sum of exponentials is then without bias that of
            all words (Rawat et al. 2019), its logarithm is not, and words more frequent than drawn
            ones come out too likely.
    """
    true = temperature * (queries * functional.embedding(targets, keys)).sum(-1, keepdim=True)
    others = temperature * (functional.embedding(drawn.words, keys) @ queries.unsqueeze(-1))
    others = others.squeeze(-1) - drawn.log_chance
    if correct_true:
        true = true - drawn.log_true
    else:
        others = others + torch.log1p(-drawn.log_true.exp()) - math.log(drawn.words.shape[-1])
    return (torch.cat([true, others], -1).logsumexp(-1) - true.squeeze(-1)).mean()
