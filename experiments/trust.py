"""The error of a model's attention relative to softmax attention, on the inputs of its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import attention
from attention.matrix import attention_matrix
from experiments.layers import look_before
from experiments.task import Measure

__all__ = ["TRUST", "trust"]

TRUST = (
    Measure("negative", "estimates below 0", "% of pairs", higher_is_better=False, form=".1f"),
    Measure("clamped", "denominators raised", "% of queries", higher_is_better=False, form=".1f"),
    Measure("distance", "from softmax's weights", "total variation", higher_is_better=False),
    Measure("lengths", "|q||k|", "mean, scaled", higher_is_better=False, form=".2f"),
)
"""Means over layers and heads. A query's weights differ from softmax's by half the sum of their
absolute differences."""


@torch.no_grad()
def trust(model: nn.Module, run: Callable[[], object]) -> dict[str, float]:
    """The measures in `TRUST` for the inputs that `run` passes through the model; zeros without
    estimates.
    """
    found: list[Tensor] = []

    def look(layer: nn.Module, tokens: tuple[Tensor, ...], _: dict[str, Any]) -> None:
        assert isinstance(layer, attention.RandomFeatureAttention)
        q, k = layer.project(*tokens)[:2]
        if isinstance(layer.feature_map, attention.FeatureMap):
            found.append(_compared(layer.feature_map, q, k))

    look_before(model, look, run)
    means = torch.stack(found).mean(0) if found else torch.zeros(len(TRUST))
    return {measure.name: float(mean) for measure, mean in zip(TRUST, means, strict=True)}


def _compared(features: attention.FeatureMap, q: Tensor, k: Tensor) -> Tensor:
    """The measures for queries and keys (batch, heads, tokens, d)."""
    seen = attention.diagnose(features, q, k)
    differ = attention_matrix(features, q, k) - (q @ k.mT).softmax(-1)
    distance = 0.5 * differ.abs().sum(-1).mean()
    lengths = q.norm(dim=-1).mean() * k.norm(dim=-1).mean()
    shares = 100 * seen.negative_estimates, 100 * seen.clamped_rows
    return torch.tensor([*shares, float(distance), float(lengths)])
