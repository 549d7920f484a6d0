"""Implicit attention: which tokens matter, without an L x L matrix.

Queries and keys are linear in the tokens and, unless their lengths are learned, L2-normalised
(Hybrid Random Features, appendix K).
The score of token j is sum_i kernel(q_i, k_j), computed in O(L) by random features; the best tokens
are kept (Implicit Attention Policy, its masking and rank variants).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import attention
from attention.components import PROJECTION, SCORE, component
from attention.joining import joined
from attention.tracing import is_exporting
from policies.common.limits import reserve

_INIT_STD = 0.2  # the scale is free (normalised); small against a search's steps, it binds less
_LONGEST = 4.0  # of learned lengths: exp(|q| |k|) stays far from overflow, whatever a search tries
_SHORTEST = 1e-12  # of vectors that are scaled to length 1
_SOFTNESS = 0.25  # of the gate through which gradients pass, in standard deviations of the scores


class LearnedSelection(nn.Module):
    """Scores tokens by attention and keeps the best.

    Args:
        num_features: length of a token with its place.
        kept: number of tokens kept.
        features: the kernel that attention is computed with: a map whose queries and keys have
            `features.dim` dimensions.
        generator: source of the initial parameters.
        score_step: logarithms of scores are rounded to multiples of this before they are compared,
            and of equal ones the first tokens are the best; 0: scores are not rounded.
        unit: whether queries and keys are normalised to length 1. If not, weights have variance 1
            at first, and the sums are divided by the root of `num_features` and by d^(1/4).
        opposed: whether keys begin as the opposites of queries: a token scores sum_i kernel(q_i,
            -q_j), the more the less it is like the others.
    """

    def __init__(
        self,
        num_features: int,
        kept: int,
        features: attention.FeatureMap | attention.ExactSoftmax,
        generator: torch.Generator,
        score_step: float = 0.0,
        unit: bool = True,
        opposed: bool = False,
    ) -> None:
        super().__init__()
        self.kept, self.score_step = kept, score_step
        shape = (num_features, features.dim)
        std = _INIT_STD if unit else 1.0
        reserve(*shape)
        self.query = nn.Parameter(std * torch.randn(shape, generator=generator))
        drawn = std * torch.randn(shape, generator=generator)
        self.key = nn.Parameter(-self.query.detach() if opposed else drawn)
        self.features = features
        self._scale = None if unit else num_features**-0.5 * features.dim**-0.25

    def project(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, each (batch, tokens, d), of (batch, tokens, features).

        In memory tokens are the last axis: a sum over d is then a sum of rows, as feature maps
        expect.
        """
        with component(PROJECTION):
            weight = torch.cat((self.query, self.key), -1)
            both = (weight.mT @ tokens.mT).unflatten(-2, (2, -1))
            if self._scale is None:
                both = both / _lengths(both, _SHORTEST)
            else:
                both = both * self._scale
                both = both * (_LONGEST / _lengths(both, _LONGEST))
            query, key = both.unbind(-3)  # before the transpose, so that the graph needs none
            return query.mT, key.mT

    def scores(self, tokens: Tensor) -> Tensor:
        """Attention that each token receives, (batch, tokens)."""
        scores: Tensor = self.features.token_scores(*self.project(tokens))
        return scores

    @torch.no_grad()
    def fit(self, tokens: Tensor) -> None:
        """Set the map's data-dependent parameters to the best for these tokens' queries and
        keys; see `attention.FeatureMap.fit`."""
        self.features.fit(*self.project(tokens))

    def best(self, scores: Tensor) -> Tensor:
        """Indices (batch, kept) of the best tokens, best first."""
        with component(SCORE):
            return self._top(scores)

    def _top(self, scores: Tensor, ordered: bool = True) -> Tensor:
        if self.score_step == 0:
            return scores.topk(self.kept, dim=-1, sorted=ordered).indices
        least = torch.finfo(scores.dtype).tiny
        steps = (scores.clamp_min(least).log() / self.score_step).round()
        if torch.compiler.is_compiling() and is_exporting():  # ONNX sorts, but not stably
            count = steps.shape[-1]
            order = steps.double() * count - torch.arange(count, device=steps.device)
            return order.topk(self.kept, dim=-1).indices
        return steps.sort(dim=-1, descending=True, stable=True).indices[..., : self.kept]

    def forward(self, tokens: Tensor) -> Tensor:
        """A gate (batch, tokens): 1 for kept tokens, else 0; gradients pass as through a sigmoid
        of the score's distance to the threshold."""
        scores = self.scores(tokens)
        with component(SCORE):
            best = self._top(scores, ordered=scores.requires_grad)
            gate = torch.zeros_like(scores).scatter_(-1, best, 1.0)
            if not scores.requires_grad:
                return gate
            soft = _soft_gate(scores, scores, scores.take_along_dim(best[..., -1:], -1))
            return gate + soft - soft.detach()

    def ranked(self, tokens: Tensor, outputs: Sequence[Tensor] = ()) -> Tensor:
        """The best tokens in order of score, (batch, kept, features).

        Gradients pass to scores as through a gate on each of them, a sigmoid of the score's
        distance to the best that is left out.

        Args:
            tokens: (batch, tokens, features), which are scored.
            outputs: the output values of each token, (batch or 1, tokens, k), concatenated.
        """
        scores = self.scores(tokens)
        best = self.best(scores)
        with component(SCORE):
            index = best.unsqueeze(-1)
            parts = [part.expand(len(tokens), -1, -1) for part in outputs or (tokens,)]
            chosen = [part.take_along_dim(index, 1) for part in parts]
            found = joined(chosen, -1)
            if not scores.requires_grad:
                return found
            kept = scores.take_along_dim(best, -1)
            left = scores.scatter(-1, best, -torch.inf).amax(-1, keepdim=True)
            threshold = left if self.kept < scores.shape[-1] else kept[..., -1:]
            soft = _soft_gate(kept, scores, threshold)
            # In this order the factor is 1 to the bit.
            return found * (1 + (soft - soft.detach())).unsqueeze(-1)


def _lengths(vectors: Tensor, least: float) -> Tensor:
    """Lengths (..., 1, tokens) of vectors (..., d, tokens), at least `least`."""
    return vectors.square().sum(-2, keepdim=True).clamp_min(least**2).sqrt()


def _soft_gate(some: Tensor, scores: Tensor, threshold: Tensor) -> Tensor:
    """A sigmoid of how far some of the scores (batch, tokens) are above the threshold."""
    scale = _SOFTNESS * scores.std(-1, keepdim=True).detach() + 1e-12
    return torch.sigmoid((some - threshold) / scale)


def straight_through(scores: Tensor, best: Tensor, kept: Tensor) -> Tensor:
    """A gate (batch, tokens): exactly 1 for the best tokens, else 0; gradients pass as through a
    sigmoid of the score's distance to the last of the best (after Bengio et al. 2013, arXiv
    1308.3432).

    Args:
        scores: (batch, tokens).
        best: indices (batch, k), best first.
        kept: the scores by which they were chosen, (batch, k), or -inf for excluded tokens. If an
        excluded token is among them, there was no choice, and no gradient passes.
    """
    soft = _soft_gate(scores, scores, kept[..., -1:])
    return torch.zeros_like(scores).scatter(-1, best, 1.0) + (soft - soft.detach())


class RandomSelection(nn.Module):
    """Keeps a fixed random set of tokens, as a baseline for attention."""

    gate: Tensor

    def __init__(self, num_tokens: int, kept: int, generator: torch.Generator) -> None:
        super().__init__()
        self.kept = kept
        gate = torch.zeros(num_tokens)
        gate[torch.randperm(num_tokens, generator=generator)[:kept]] = 1.0
        self.register_buffer("gate", gate)

    def forward(self, tokens: Tensor) -> Tensor:
        """The same gate (batch, tokens) for every observation."""
        return self.gate.expand(tokens.shape[0], -1)
