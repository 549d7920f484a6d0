"""Settings of a memory from appearance to what a foot felt; nothing here needs PyTorch."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import CHECKED, ComponentName, Projection, check_feature_map

RAW = "raw"
"""Name, beside those of feature maps, of the keys themselves and a constant."""


@dataclass(frozen=True, config=CHECKED)
class FeltMemoryConfig:
    """Settings of `policies.felt_ground.memories.felt_memory`. Keys are unit vectors."""

    kind: Literal[
        "linear",
        "exact",
        "leader",
        "nearest",
        "least_squares",
        "grid",
        "gru",
        "transformer",
        "none",
    ] = "linear"
    """Linear attention; softmax attention over samples (exact); prototypes, each with the mean of
    its values (leader); the value of the nearest sample; recursive least squares on features; a
    grid of cells along random directions, hashed if they are many; networks that must be trained
    (gru, transformer); none."""
    feature_map: ComponentName = "trig"
    """Feature map of linear and least_squares, or raw: the keys and a constant."""
    num_features: int = Field(default=128, ge=1, le=10_000)
    """Number m of that map."""
    projection: Projection = "orthogonal"
    """Coupling of its random vectors."""
    kappa: float = Field(default=3.0, gt=0, le=1000)
    """The kernel of keys x and y is that of exp(kappa x.y); (1 + kappa x.y)^2 for quadratic."""
    rule: Literal["sum", "delta"] = "delta"
    """Update of linear attention."""
    rate: float = Field(default=0.5, gt=0, le=1)
    """Share of the difference that a sample corrects by the delta rule."""
    forgetting: float = Field(default=1.0, gt=0, le=1)
    """Factor by which a sample discounts earlier ones: all of them (linear, exact, nearest,
    least_squares), or those of the same prototype or cell."""
    capacity: int = Field(default=256, ge=1, le=100_000)
    """Newest samples that exact, nearest and transformer keep; prototypes of leader."""
    threshold: float = Field(default=0.8, ge=-1, le=1)
    """Cosine to the nearest prototype below which a sample begins another one."""
    ridge: float = Field(default=1.0, gt=0, le=1e6)
    """Weight of the squared coefficients in recursive least squares."""
    directions: int = Field(default=4, ge=1, le=64)
    """Random directions along which a grid divides the keys."""
    bins: int = Field(default=4, ge=2, le=64)
    """Intervals of a direction, equally likely for random keys."""
    cells: int = Field(default=256, ge=2, le=1 << 20)
    """Cells of a table; directions with more are hashed into them."""
    tables: int = Field(default=1, ge=1, le=64)
    """Tables with directions of their own, whose cells are read together."""
    hidden: int = Field(default=256, ge=1, le=4096)
    """Width of gru and transformer."""
    project: int | None = Field(default=None, ge=1)
    """Random directions that replace the keys; null: the keys themselves."""
    seed: int = Field(default=0, ge=0)
    """Seed of random vectors."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.feature_map != RAW:
            check_feature_map(self.feature_map, "hyperbolic", self.projection, 2)
        return self
