"""Statistics as LeRobot keeps them, of an episode and of all: min, max, mean, std, count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments"]


@dataclass(frozen=True)
class Moments:
    """Elementwise statistics, which can be merged (Chan, Golub, LeVeque 1979)."""

    count: int
    """Frames."""
    weight: int
    """Values of an element: the frames, or their pixels of a channel."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sum of squared distances to the mean."""

    @classmethod
    def of(cls, values: NDArray[Any]) -> Moments:
        """Statistics of an array (frames, ...)."""
        x = np.asarray(values, np.float64)
        return cls._of(x, len(x))

    @classmethod
    def of_picture(cls, picture: NDArray[np.uint8]) -> Moments:
        """Statistics of one image (height, width, channels) per channel (channels, 1, 1), with
        white as 1.
        """
        x = picture.reshape(-1, picture.shape[-1]).astype(np.float64) / 255
        found = cls._of(x, 1)
        parts = (found.low, found.high, found.mean, found.squares)
        return cls(1, found.weight, *(part.reshape(-1, 1, 1) for part in parts))

    @classmethod
    def _of(cls, x: NDArray[np.float64], count: int) -> Moments:
        mean = x.mean(0)
        return cls(count, len(x), x.min(0), x.max(0), mean, ((x - mean) ** 2).sum(0))

    def __add__(self, other: Moments) -> Moments:
        total = self.weight + other.weight
        apart = other.mean - self.mean
        return Moments(
            self.count + other.count,
            total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + apart * (other.weight / total),
            self.squares + other.squares + apart**2 * (self.weight * other.weight / total),
        )

    def as_json(self) -> dict[str, Any]:
        """The statistics in LeRobot's format."""
        deviation = np.sqrt(self.squares / self.weight)
        numbers = {"min": self.low, "max": self.high, "mean": self.mean, "std": deviation}
        return {name: part.tolist() for name, part in numbers.items()} | {"count": [self.count]}
