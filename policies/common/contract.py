"""Protocols of custom policies: required and optional members (docs/guide/custom_policy.md)."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.common.normaliser import RunningNormaliser

__all__ = ["Cloned", "Normalised", "Policy"]


class Policy(Protocol):
    """An `nn.Module`, made by Class(observation_space, action_space, **options): evolution
    strategies search its parameters, and its `state_dict` is what a checkpoint holds."""

    def reset(self) -> None:
        """Begin an episode: clear the recurrent state."""

    def act(self, observation: Any) -> Any:
        """The action for one observation, both in the environment's format."""


class Normalised(Policy, Protocol):
    """A policy that normalises by running statistics of the training observations."""

    normaliser: RunningNormaliser
    """Normalises k numbers; trainers set its statistics."""

    def measured(self, observation: Any) -> NDArray[np.float64]:
        """The values of one observation that are normalised, (k,)."""


class Cloned(Policy, Protocol):
    """A policy that can be cloned."""

    def loss(
        self, observations: Mapping[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> Tensor:
        """The loss for the expert's `actions` (batch, ...), a scalar with a gradient.

        Args:
            observations: each part (batch, ...) by its name; that of an observation without parts
                is "observation", those of nested ones are named "a.b".
            actions: actions in the environment's format.
            generator: source of all random numbers.
        """
