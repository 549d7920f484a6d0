"""Settings and measures of classifiers built from an image skeleton."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from experiments.fitting import Fitting
from experiments.task import Measure, Task

__all__ = ["COMPOSITIONAL", "CompositionalConfig"]


@dataclass(
    frozen=True,
    kw_only=True,
    config=ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False),
)
class CompositionalConfig:
    """A classifier of Fashion-MNIST, cut to 24 x 24 pixels."""

    learner: Literal["features", "network", "frozen"] = "features"
    """A linear classifier of random features, the skeleton's network, or that network of which the
    last layer alone is learned: random features of another kind."""
    windows: tuple[Annotated[int, Field(ge=1, le=24)], ...] = Field(default=(4, 5), max_length=3)
    """Sides of the convolutions, from below; without any the skeleton is fully connected."""
    activation: Literal["relu", "identity"] = "relu"
    """Of all nodes; identity is for features alone, and without windows a linear classifier."""
    components: int | None = Field(default=10, ge=1)
    """Principal components of a first window; null: its pixels."""
    scale: float = Field(default=0.5, gt=0)
    """Radians of the unit circle for a deviation of the inputs."""
    features: int = Field(default=10_000, ge=1, le=200_000)
    """Distinct random features; two columns each."""
    draws: int = Field(default=1_000_000, ge=1, le=10_000_000)
    """Of random features at most, equal ones among them."""
    channels: int = Field(default=64, ge=1, le=1024)
    """Neurons of a convolution's node in a network."""
    hidden: int = Field(default=384, ge=1, le=10_000)
    """Neurons of the output node in a network."""
    augment: bool = True
    """Learn from cuts at random places, half of them mirrored; else from the middle."""
    fitting: Fitting = Fitting(
        steps=2345, learning_rate=25.0, schedule="constant", optimiser="adagrad",
        max_grad_norm=None, measure_every=469,
    )  # fmt: skip
    """Five epochs of 469 batches by default."""
    batch: int = Field(default=128, ge=1)
    """Images of a step."""
    held_out: int = Field(default=5000, ge=1, lt=60_000)
    """Images of the training set that are not learned from; curves are measured on them."""
    test: int = Field(default=10_000, ge=1, le=10_000)
    """Test images, the first."""


COMPOSITIONAL = Task(
    name="compositional",
    settings=CompositionalConfig,
    module="experiments.compositional.learning",
    measures=(
        Measure("accuracy", "accuracy", "% of test pictures", form=".2f"),
        Measure("loss", "test loss", "nats", higher_is_better=False),
        Measure("parameters", "learned", "numbers", higher_is_better=False, form=",.0f"),
    ),
)
