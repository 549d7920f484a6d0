"""Weights of all words for a query: exact, estimated by random features, or without the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import attention
from experiments.language.settings import ProposalSettings

__all__ = ["ExactProposal", "KnownProposal", "MapProposal", "Proposal", "make_proposal"]

_KEYS_AT_ONCE = 4096


class Proposal(nn.Module):
    """Weights of words, up to a factor per query; estimates can be negative."""

    features: int
    """F, numbers of the vectors whose product a weight is; 0: none."""

    def fit(self, queries: Tensor, keys: Tensor) -> None:
        """Set the parameters that depend on queries and keys (n, d)."""

    def redraw(self, generator: torch.Generator) -> None:
        """New random vectors."""

    def of_query(self, query: Tensor) -> object:
        """The transformation of a query (1, d) before its product with the words."""

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(n, d) and (words, d) -> (n, words)."""
        raise NotImplementedError


class ExactProposal(Proposal):
    """exp(q.k)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = width

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The largest is 1."""
        logits = queries @ keys.mT
        return (logits - logits.amax(-1, keepdim=True)).exp()


class KnownProposal(Proposal):
    """The same for every query."""

    features = 0
    own: Tensor
    """(words,)"""

    def __init__(self, own: Tensor) -> None:
        super().__init__()
        self.register_buffer("own", own.float(), persistent=False)

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.own.expand(len(queries), -1)


class MapProposal(Proposal):
    """phi(q).phi(k), an estimate of exp(q.k)."""

    def __init__(self, feature_map: attention.FeatureMap) -> None:
        super().__init__()
        self.feature_map = feature_map
        self.features = feature_map.output_dim

    def fit(self, queries: Tensor, keys: Tensor) -> None:
        self.feature_map.fit(queries, keys)

    def redraw(self, generator: torch.Generator) -> None:
        self.feature_map.redraw(generator)

    def of_query(self, query: Tensor) -> object:
        return self.feature_map.scaled_queries(query)

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Features keep their scale apart, and that of the largest key is left out."""
        phi = self.feature_map.scaled_queries(queries).mantissa
        products, scales = [], []
        for part in keys.split(_KEYS_AT_ONCE):
            own = self.feature_map.scaled_keys(part)
            products.append(phi @ own.mantissa.mT)
            scales.append(own.log_scale.mT)
        scale = torch.cat(scales, -1)
        return torch.cat(products, -1).mul_((scale - scale.amax()).exp())


def make_proposal(settings: ProposalSettings, width: int, counts: Tensor, seed: int) -> Proposal:
    """Build the proposal of given settings.

    Args:
        settings: which.
        width: dimension d of queries and keys.
        counts: counts of the words in the text, (words,).
        seed: seed of the random vectors.

    Raises ValueError for an unknown map or option.
    """
    known: dict[str, Callable[[], Proposal]] = {
        "softmax": lambda: ExactProposal(width),
        "uniform": lambda: KnownProposal(torch.ones_like(counts)),
        "unigram": lambda: KnownProposal(counts),
    }
    if settings.feature_map in known:
        return known[settings.feature_map]()
    own: dict[str, Any] = dict(settings.options)
    if settings.num_lambda_features is not None:
        own["num_lambda_features"] = settings.num_lambda_features
    return MapProposal(
        attention.feature_map(
            settings.feature_map, width, settings.num_features, projection=settings.projection,
            seed=seed, **own,
        )
    )  # fmt: skip
