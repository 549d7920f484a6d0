"""Attention and Transformer blocks of the experiments' models."""

from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

import attention
from experiments.fitting import Fitting
from experiments.task import STRICT

Attention = attention.RandomFeatureAttention
Look = Callable[[Any, tuple[Tensor, ...], dict[str, Any]], None]
"""Receives an attention layer and its positional and keyword arguments."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MapSettings:
    """A feature map."""

    feature_map: str = "softmax"
    """One of `attention.available()`, or softmax: exact."""
    num_features: int = Field(default=64, ge=1)
    """Random vectors m."""
    num_lambda_features: int | None = Field(default=None, ge=1)
    """Random vectors n of a hybrid's coefficient."""
    projection: str = "orthogonal"
    """Coupling of the random vectors: iid, orthogonal, simplex, ..."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Other options of the feature map."""

    @property
    def map_options(self) -> dict[str, Any]:
        """Keyword arguments of the feature map."""
        if self.num_lambda_features is None:
            return self.options
        return self.options | {"num_lambda_features": self.num_lambda_features}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AttentionSettings(MapSettings):
    """Attention of every layer; the feature map `none` leaves it out."""

    redraw_every: int | None = Field(default=None, ge=1)
    """Steps after which random vectors are redrawn in training; null: never."""
    fit_at: int | None = Field(default=None, ge=1)
    """Step before which the map is fitted to the batch's queries and keys, once; null: never."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerConfig:
    """Settings that all Transformers have in common."""

    attention: AttentionSettings = AttentionSettings()
    """Attention of all layers."""
    fitting: Fitting = Fitting()
    """How it is trained."""
    batch: int = Field(default=32, ge=1, le=10_000)
    """Examples of a step."""
    layers: int = Field(default=3, ge=1)
    """Transformer blocks."""
    width: int = Field(default=64, ge=1)
    """Width of a token."""
    heads: int = Field(default=4, ge=1)
    """Attention heads; they divide the width."""
    mlp_width: int = Field(default=128, ge=1)
    """Width of a block's hidden layer."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of activations left out in training."""


class NoAttention(nn.Module):
    """A control in place of attention, which adds nothing to tokens."""

    def forward(self, query: Tensor, *_: Tensor, **__: Any) -> tuple[Tensor, None]:
        """(batch, tokens, width) -> zeros."""
        return torch.zeros_like(query), None


def make(settings: AttentionSettings, width: int, heads: int, seed: int) -> Attention | NoAttention:
    """Attention over tokens (batch, tokens, width)."""
    if settings.feature_map == "none":
        return NoAttention()
    return Attention(
        width, heads, settings.feature_map, settings.num_features, projection=settings.projection,
        seed=seed, batch_first=True,
        **({} if settings.feature_map == "softmax" else settings.map_options),
    )  # fmt: skip


class Block(nn.Module):
    """Attention, then a feed-forward network, each with a residual connection.

    It normalises before each of them (Xiong et al. 2020).
    """

    def __init__(self, settings: TransformerConfig, seed: int) -> None:
        super().__init__()
        width, hidden = settings.width, settings.mlp_width
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = make(settings.attention, width, settings.heads, seed)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(settings.dropout),
            nn.Linear(hidden, width),
        )  # fmt: skip
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """(batch, tokens, width) -> the same; padding (batch, tokens) is True where none is."""
        x = self.before_attention(tokens)
        tokens = tokens + self.dropout(self.attention(x, x, x, key_padding_mask=padding)[0])
        mixed: Tensor = tokens + self.dropout(self.mlp(self.before_mlp(tokens)))
        return mixed


class Encoder(nn.Module):
    """A stack of blocks, each with separate random vectors."""

    def __init__(self, settings: TransformerConfig, seed: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(settings, 1000 * seed + layer) for layer in range(settings.layers)
        )
        self.last = nn.LayerNorm(settings.width)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """(batch, tokens, width) -> the same; padding (batch, tokens) is True where none is."""
        for block in self.blocks:
            tokens = block(tokens, padding)
        normalised: Tensor = self.last(tokens)
        return normalised


def sinusoids(count: int, width: int) -> Tensor:
    """Sines and cosines (count, width) of wavelengths from 2 pi to 2 pi 10,000 tokens (Vaswani et
    al. 2017)."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


@torch.no_grad()
def prepare_step(
    model: nn.Module, settings: AttentionSettings, seed: int, step: int, run: Callable[[], object]
) -> None:
    """Fit the maps or redraw their random vectors before a step, if they are due.

    Maps are fitted in turn to the queries and keys that `run` passes through the model, so that
    later layers use the fitted maps of earlier ones. Padding is ignored.

    Args:
        model: the model whose layers have the maps.
        settings: when.
        seed: seed of the draws.
        step: number of the step, counted from 1.
        run: runs the model on the batch for fitting.
    """

    def fit(layer: Attention, tokens: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        query, key = tokens[:2]
        padding = named.get("key_padding_mask")
        if padding is not None:
            query, key = query[~padding].unsqueeze(0), key[~padding].unsqueeze(0)
        layer.fit(query, key)

    if settings.fit_at == step:
        look_before(model, fit, run)
    random = settings.feature_map not in ("softmax", "none")
    if random and settings.redraw_every is not None and step % settings.redraw_every == 0:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        for layer in _layers(model):
            layer.redraw(generator)


def look_before(model: nn.Module, look: Look, run: Callable[[], object]) -> None:
    """Call `run`, with `look` called on each attention layer and its arguments beforehand."""
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in _layers(model)]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()


def _layers(model: nn.Module) -> list[Attention]:
    return [layer for layer in model.modules() if isinstance(layer, Attention)]
