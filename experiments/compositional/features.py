"""A linear classifier of a skeleton's random features, which are recomputed for every batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from attention.compositional import Features, Skeleton, draw_distinct
from experiments.compositional.skeletons import CLASSES

__all__ = ["FeatureClassifier"]


class FeatureClassifier(nn.Module):
    """Logits from the real and imaginary parts of q features; the classifier's weights start at
    zero.

    The features are products of points of the unit circle, so a batch of them is the exponential of
    a sparse matrix of exponents times the angles.
    """

    exponents: Tensor
    """(q, columns), sparse."""
    weights: Tensor
    """(2q,), of cosines, then of sines."""

    def __init__(self, skeleton: Skeleton, count: int, draws: int, seed: int) -> None:
        """`count` distinct features from at most `draws` draws, determined by the seed."""
        super().__init__()
        rng = np.random.default_rng(seed)
        features = draw_distinct(skeleton, count, rng, max_draws=draws)
        weights = torch.from_numpy(features.weights).float()
        self.register_buffer("exponents", _exponents(features), persistent=False)
        self.register_buffer("weights", weights.repeat(2), persistent=False)
        self.classify = nn.Parameter(torch.zeros(CLASSES, 2 * len(features)))

    def features(self, angles: Tensor) -> Tensor:
        """Radians (n, columns) -> unweighted features (2q, n), cosines before sines."""
        # The skeleton's columns may lack a margin that no window reaches.
        phase = self.exponents @ angles[:, : self.exponents.shape[1]].T.contiguous()
        found = phase.new_empty(2 * len(phase), phase.shape[1])
        torch.cos(phase, out=found[: len(phase)])
        torch.sin(phase, out=found[len(phase) :])
        return found

    def forward(self, angles: Tensor) -> Tensor:
        """Radians (n, columns) -> logits (n, 10)."""
        logits: Tensor = ((self.classify * self.weights) @ self.features(angles)).T
        return logits


def _exponents(features: Features) -> Tensor:
    """(q, columns), sparse: a feature is exp(i exponents.angles)."""
    rows, columns, values = [], [], []
    for name, terms in features.terms.items():
        (column,) = features.skeleton.inputs[name].columns
        rows.append(terms.owner)
        columns.append(np.full_like(terms.owner, column))
        values.append(terms.exponent)
    places = torch.from_numpy(np.stack((np.concatenate(rows), np.concatenate(columns))))
    size = (len(features), features.skeleton.num_columns)
    whole = torch.sparse_coo_tensor(
        places, torch.from_numpy(np.concatenate(values)).float(), size, check_invariants=True
    )
    return whole.coalesce()
