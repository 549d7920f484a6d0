"""Settings and measures of text Transformers."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from experiments.data.listops import Grammar
from experiments.fitting import Fitting
from experiments.layers import AttentionSettings
from experiments.task import Measure, Task

__all__ = ["LISTOPS", "ListopsConfig"]


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False),
)
class ListopsConfig:
    """A Transformer that reads an expression and tells its value."""

    attention: AttentionSettings = AttentionSettings()
    """Of all layers."""
    fitting: Fitting = Fitting(steps=2000, learning_rate=1e-3, warmup_steps=100, measure_every=200)
    """No expression is learned from twice."""
    grammar: Grammar = Grammar()
    """Which expressions; by default about those of the Long Range Arena, half as long."""
    batch: int = Field(default=32, ge=1, le=10_000)
    """Expressions of a step."""
    read: Literal["first", "mean"] = "first"
    """What is classified: the first token, which is the outer operator, or the mean over tokens."""
    layers: int = Field(default=3, ge=1)
    """Transformer blocks."""
    width: int = Field(default=64, ge=2, multiple_of=2)
    """Numbers of a token."""
    heads: int = Field(default=4, ge=1)
    """Attention heads; they divide the width."""
    mlp_width: int = Field(default=128, ge=1)
    """Of a block's hidden layer."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of activations left out in training."""
    curve: int = Field(default=500, ge=1, le=100_000)
    """Other expressions, on which curves are measured."""
    test: int = Field(default=2000, ge=1, le=100_000)
    """Again others, on which models are tested; the same for all seeds."""


LISTOPS = Task(
    name="listops",
    settings=ListopsConfig,
    module="experiments.text.learning",
    measures=(
        Measure("accuracy", "accuracy", "% of test expressions", form=".2f"),
        Measure("loss", "test loss", "nats", higher_is_better=False),
        Measure("most_common", "most common answer", "% of test expressions", form=".2f"),
        Measure("by_operator", "most common of the outer operator", "% of test expressions",
                form=".2f"),
        Measure("attention_flops", "attention, FLOPs", "an expression of the greatest length",
                higher_is_better=False, form=",.0f"),
        Measure("flops", "model, FLOPs", "an expression of the greatest length",
                higher_is_better=False, form=",.0f"),
    ),
)  # fmt: skip
