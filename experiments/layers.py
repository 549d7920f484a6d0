"""Attention of the experiments' models: which, and what is done with it in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

import attention

__all__ = [
    "AttentionSettings",
    "NoAttention",
    "fit_maps",
    "is_of_map",
    "look_before",
    "make",
    "prepare_step",
]

_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
Look = Callable[[nn.Module, tuple[Tensor, ...], dict[str, Any]], None]
"""Is given a layer, what it is called with by place, and by name."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class AttentionSettings:
    """Which attention, in every layer."""

    feature_map: str = "softmax"
    """One of `attention.available()`; or softmax, exact attention; or none: it is left out."""
    num_features: int = Field(default=64, ge=1)
    """Random vectors m."""
    num_lambda_features: int | None = Field(default=None, ge=1)
    """Random vectors n of a hybrid's coefficient."""
    projection: str = "orthogonal"
    """Coupling of the random vectors: iid, orthogonal, simplex, ..."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Other options of the feature map."""
    redraw_every: int | None = Field(default=None, ge=1)
    """Steps after which random vectors are drawn anew in training; null: never."""
    fit_at: int | None = Field(default=None, ge=1)
    """Step before which the map is fitted to the batch's queries and keys, once; null: never."""


class NoAttention(nn.Module):
    """A control in place of attention that adds nothing to tokens."""

    def forward(self, query: Tensor, *_: Tensor, **__: Any) -> tuple[Tensor, None]:
        """(batch, tokens, width) -> zeros."""
        return torch.zeros_like(query), None


def make(settings: AttentionSettings, width: int, heads: int, seed: int,
         dropout: float = 0.0) -> attention.RandomFeatureAttention | NoAttention:  # fmt: skip
    """Attention over tokens (batch, tokens, width)."""
    if settings.feature_map == "none":
        return NoAttention()
    own: dict[str, Any] = {}
    if settings.feature_map != "softmax":
        own |= settings.options
        if settings.num_lambda_features is not None:
            own["num_lambda_features"] = settings.num_lambda_features
    return attention.RandomFeatureAttention(
        width, heads, settings.feature_map, settings.num_features, projection=settings.projection,
        seed=seed, dropout=dropout, batch_first=True, **own,
    )  # fmt: skip


def prepare_step(
    model: nn.Module, settings: AttentionSettings, seed: int, step: int, run: Callable[[], object]
) -> None:
    """Fit the maps or redraw their random vectors before a step, if they are due.

    Args:
        model: the model whose layers have the maps.
        settings: when.
        seed: seed of the draws.
        step: number of the step, counted from 1.
        run: runs the model on the batch for fitting.
    """
    if settings.fit_at == step:
        fit_maps(model, run)
    random = settings.feature_map not in ("softmax", "none")
    if random and settings.redraw_every is not None and step % settings.redraw_every == 0:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        for layer in _layers(model):
            layer.redraw(generator)


@torch.no_grad()
def fit_maps(model: nn.Module, run: Callable[[], object]) -> None:
    """Fit all layers' maps in turn to the queries and keys that `run` passes through the model.

    Later layers use the fitted maps of earlier ones. Padding is ignored.
    """

    def fit(layer: nn.Module, tokens: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        query, key = tokens[:2]
        padding = named.get("key_padding_mask")
        if padding is not None:
            query, key = query[~padding].unsqueeze(0), key[~padding].unsqueeze(0)
        assert isinstance(layer, attention.RandomFeatureAttention)
        layer.fit(query, key)

    look_before(model, fit, run)


def look_before(model: nn.Module, look: Look, run: Callable[[], object]) -> None:
    """Call `run`, with `look` called on each attention layer, its tokens and its keyword arguments
    beforehand.
    """
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in _layers(model)]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()


def is_of_map(name: str) -> bool:
    """Whether a model's tensor of this name belongs to a feature map: random vectors or fitted
    parameters.
    """
    return ".feature_map." in name


def _layers(model: nn.Module) -> list[attention.RandomFeatureAttention]:
    return [m for m in model.modules() if isinstance(m, attention.RandomFeatureAttention)]
