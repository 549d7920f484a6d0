"""Settings of RecordedSpaces-v0; every one is a keyword of `gymnasium.make`."""

import math
from typing import Annotated, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_TYPES = ("uint8", "int32", "int64", "float32", "float64")
_MOST_NUMBERS = 2**25  # more than an image of 4K


@dataclass(frozen=True, config=_STRICT)
class PartConfig:
    """A Box."""

    shape: Annotated[tuple[Annotated[int, Field(ge=1, lt=2**31)], ...], Field(max_length=5)]
    """Shape of its arrays."""
    dtype: str = "float32"
    """NumPy's name of the type."""
    low: tuple[float, ...] | None = None
    """Lower bounds, one for all numbers or one each; null: none."""
    high: tuple[float, ...] | None = None
    """Upper bounds, likewise."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        count = math.prod(self.shape)
        if self.dtype not in _TYPES:
            raise ValueError(f"dtype must be one of {', '.join(_TYPES)}, got {self.dtype!r}")
        if count > _MOST_NUMBERS:
            raise ValueError(f"shape must hold at most {_MOST_NUMBERS} numbers, got {self.shape}")
        for name, bounds in (("low", self.low), ("high", self.high)):
            if bounds is None and not self.dtype.startswith("float"):
                raise ValueError(f"{name} must be given for {self.dtype}")
            if bounds is not None and len(bounds) not in (1, count):
                raise ValueError(f"{name} must have 1 or {count} numbers, got {len(bounds)}")
        low, high = np.broadcast_arrays(self.low or -math.inf, self.high or math.inf)
        if not (low <= high).all():
            raise ValueError("low must be at most high")
        return self


@dataclass(frozen=True, config=_STRICT)
class RecordedSpacesConfig:
    """Observation, action and rate of RecordedSpaces-v0. `training.bc` fills them in."""

    observation: Annotated[dict[str, PartConfig], Field(max_length=1000)] = Field(
        default_factory=dict
    )
    """Parts of an observation by name, as in {camera: {shape: [96, 96, 3], dtype: uint8, low: [0],
    high: [255]}}."""
    action: PartConfig | None = None
    """The action."""
    rate_hz: float | None = Field(default=None, gt=0, le=1e6)
    """Steps a second; null: unknown."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        count = sum(math.prod(part.shape) for part in self.observation.values())
        if count > _MOST_NUMBERS:
            raise ValueError(
                f"observation must hold at most {_MOST_NUMBERS} numbers in all, got {count}"
            )
        return self
