"""An optimiser's state as named tensors, which a checkpoint holds."""

from __future__ import annotations

import torch
from torch import Tensor

from training.command.errors import UserError
from training.io.checkpoint import Checkpoint, check_tensors

__all__ = ["optimiser_tensors", "set_optimiser"]


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of Adam or AdamW, by parameter and name."""
    states = optimiser.state_dict()["state"]
    return {f"{i}/{key}": value for i, state in states.items() for key, value in state.items()}


def set_optimiser(
    optimiser: torch.optim.Optimizer, start: Checkpoint, count: int | None, prefix: str = ""
) -> None:
    """Set the optimiser's state from the `optimiser_tensors` of a checkpoint, whose names begin
    with the `prefix` there.

    UserError unless these are `count` (None: unknown), and all that each parameter with any needs:
    one that no gradient has reached has none.
    """
    found = {
        name.removeprefix(prefix): tensor
        for name, tensor in start.search.items()
        if name.startswith(prefix)
    }
    if count not in (None, len(found)):
        raise UserError(
            f"{start.path} holds {len(found)} tensors of the optimiser, where {count} were written"
        )
    known = {name.partition("/")[0] for name in found}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    states = {
        i: {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for i, parameter in enumerate(parameters)
        if str(i) in known
    }
    needed = {f"{i}/{key}": value for i, state in states.items() for key, value in state.items()}
    check_tensors(start.path, "optimiser", found, needed)
    for i, state in states.items():
        states[i] = {key: found[f"{i}/{key}"] for key in state}
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": states, "param_groups": groups})
