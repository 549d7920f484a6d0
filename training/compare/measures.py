"""The results table of a comparison: measures of models by variant and seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from training.analysis.intervals import Interval, seeds_interval


@dataclass(frozen=True)
class Measure:
    """A number by which variants are compared."""

    name: str
    """Its key in results."""
    label: str
    """Its name on a page."""
    unit: str = ""
    """Unit, printed below the name."""
    form: str = ".3f"
    """How it is printed."""
    higher_is_better: bool = False


class Cell(NamedTuple):
    """A measure of a variant, or a difference between two, over seeds."""

    values: tuple[float, ...]
    """Values by seed; NaN where a model has no number."""

    @property
    def finite(self) -> np.ndarray:
        """The finite values."""
        found = np.array(self.values)
        return found[np.isfinite(found)]

    @property
    def without(self) -> str:
        """The number of values that are not finite in words; empty if there are none."""
        none = len(self.values) - len(self.finite)
        return f"NaN in {none} of {len(self.values)}" if none else ""

    @property
    def mean(self) -> float | None:
        """Mean of the finite values; None if there are none."""
        return float(self.finite.mean()) if len(self.finite) else None

    @property
    def sd(self) -> float | None:
        """Their standard deviation; None of fewer than two."""
        return float(self.finite.std(ddof=1)) if len(self.finite) > 1 else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean, over seeds."""
        return seeds_interval(self.finite)

    @property
    def verdict(self) -> str:
        """The verdict of a difference on a claim; `without` unless all values are finite."""
        if self.without:
            return self.without
        if self.interval is None:
            return "too few seeds"
        low, high = self.interval
        return "holds" if low > 0 else "the other way" if high < 0 else "not told apart"


@dataclass(frozen=True)
class ResultsTable:
    """The numbers of a comparison's models."""

    models: Mapping[str, Mapping[int, Mapping[str, float | None]]]
    """Numbers by variant, seed and measure; None: not a number."""

    def values(self, variant: str, measure: str) -> dict[int, float]:
        """A measure of a variant by seed; NaN where a model has no number."""
        found = {seed: own.get(measure) for seed, own in self.models.get(variant, {}).items()}
        return {seed: math.nan if value is None else value for seed, value in found.items()}

    def cell(self, variant: str, measure: str) -> Cell:
        """A measure of a variant."""
        return Cell(tuple(self.values(variant, measure).values()))

    def difference(self, ours: str, theirs: str, measure: str, sign: float = 1.0) -> Cell:
        """The sign times the difference between two variants, over their common seeds."""
        own, other = self.values(ours, measure), self.values(theirs, measure)
        return Cell(tuple(sign * (own[seed] - other[seed]) for seed in own if seed in other))
