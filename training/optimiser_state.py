"""An optimiser's state as named tensors, which a checkpoint holds."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["optimiser_tensors", "set_optimiser"]


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state, by parameter and name."""
    states = optimiser.state_dict()["state"]
    return {f"{i}/{key}": value for i, state in states.items() for key, value in state.items()}


def set_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Set the optimiser's state from `optimiser_tensors`."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split("/")
        states.setdefault(int(index), {})[key] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": states, "param_groups": groups})
