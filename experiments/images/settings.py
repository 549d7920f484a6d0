"""Settings and measures of image Transformers."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from experiments.fitting import Fitting
from experiments.layers import AttentionSettings
from experiments.task import Measure, Task
from experiments.trust import TRUST

__all__ = ["IMAGES", "TRUSTED_IMAGES", "ImagesConfig"]


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False),
)
class ImagesConfig:
    """A Vision Transformer on Fashion-MNIST."""

    attention: AttentionSettings = AttentionSettings()
    """Of all layers."""
    fitting: Fitting = Fitting(steps=4690, learning_rate=1e-3, warmup_steps=200, measure_every=469)
    """Ten epochs of 469 batches by default."""
    batch: int = Field(default=128, ge=1)
    """Images of a step."""
    patch_px: int = Field(default=4, ge=1, le=28)
    """Side of a patch; it divides 28."""
    read: Literal["class", "mean"] = "class"
    """What is classified: a token of its own before the patches, or the mean over patches."""
    layers: int = Field(default=3, ge=1)
    """Transformer blocks."""
    width: int = Field(default=64, ge=1)
    """Numbers of a token."""
    heads: int = Field(default=4, ge=1)
    """Attention heads; they divide the width."""
    mlp_width: int = Field(default=128, ge=1)
    """Of a block's hidden layer."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of activations left out in training."""
    held_out: int = Field(default=5000, ge=1, lt=60_000)
    """Images of the training set that are not learned from; curves are measured on them."""
    test: int = Field(default=10_000, ge=1, le=10_000)
    """Test images, the first."""


IMAGES = Task(
    name="images",
    settings=ImagesConfig,
    module="experiments.images.learning",
    measures=(
        Measure("accuracy", "accuracy", "% of test pictures", form=".2f"),
        Measure("loss", "test loss", "nats", higher_is_better=False),
        Measure("attention_flops", "attention, FLOPs", "a picture", higher_is_better=False,
                form=",.0f"),
        Measure("flops", "model, FLOPs", "a picture", higher_is_better=False, form=",.0f"),
    ),
)  # fmt: skip

TRUSTED_IMAGES = Task(
    name="trusted_images",
    settings=ImagesConfig,
    module="experiments.images.trusted",
    measures=(*IMAGES.measures, *TRUST),
)
