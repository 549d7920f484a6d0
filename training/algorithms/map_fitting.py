"""Fits a policy's feature maps to its queries and keys, once during training.

Before training only the length of queries and keys is known
(`policies.common.feature_maps`).
Every trainer therefore fits data-dependent maps (the A of OPRF, the clusters of a
clustered hybrid) after `fit_after` of its updates, and leaves them as they are from then on: Hybrid
Random Features, section 4.3, finds clusters after 1,000 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import nn

from foveate_extras import require
from policies.common.feature_maps import unfitted
from training.io.config import UserError

__all__ = ["OBSERVATIONS", "announce", "evenly", "is_due", "sound"]

OBSERVATIONS = 32
"""At most so many are fitted to."""


def is_due(fit_after: int | None, fitted: bool, updates: int) -> bool:
    """Whether maps must be fitted after this number of `updates`."""
    return fit_after is not None and not fitted and updates >= fit_after


def announce(policy: nn.Module, fit_after: int | None, fitted: bool, updates: int) -> None:
    """Print a note if a run of `updates` would leave a map unfitted that requires fitting.

    Raises MissingExtraError if what fits it is not installed.
    """
    if not fitted and fit_after is not None and unfitted(policy):
        require("feature_map = clustered_hybrid", "sklearn")
    if fitted or not unfitted(policy) or is_due(fit_after, fitted, updates):
        return
    ends = "never" if fit_after is None else f"after {fit_after} updates"
    print(
        f"fit_after = {fit_after}: the clusters of clustered_hybrid are found {ends}, and this run "
        f"makes {updates}; without them it is positive features at a multiple of their cost",
        flush=True,
    )


@contextmanager
def sound() -> Iterator[None]:
    """UserError when the block cannot fit the maps to what was seen."""
    try:
        yield
    except ValueError as error:
        raise UserError(
            f"training stopped: the feature map cannot be fitted ({error}); the last checkpoint is "
            "intact, and fit_after = null leaves the map as it is"
        ) from None


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the indices below `count`, spread evenly."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
