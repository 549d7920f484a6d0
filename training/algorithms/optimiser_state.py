"""An optimiser's state as named tensors for a checkpoint."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from training.command.errors import UserError
from training.io.checkpoint import Checkpoint, check_tensors


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of Adam, AdamW or Adagrad, by parameter and name."""
    states = optimiser.state_dict()["state"]
    return {f"{i}/{key}": value for i, state in states.items() for key, value in state.items()}


def load_optimiser(
    optimiser: torch.optim.Optimizer, found: Mapping[str, Tensor], path: Path
) -> None:
    """Load the `optimiser_tensors` of a file into an optimiser.

    Raises UserError unless the state of each parameter is complete or, without a gradient so far,
    absent.
    """
    adagrad = isinstance(optimiser, torch.optim.Adagrad)
    keys = ("step", "sum") if adagrad else ("step", "exp_avg", "exp_avg_sq")
    known = {name.partition("/")[0] for name in found}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    begun = [i for i in range(len(parameters)) if str(i) in known]
    needed = {
        f"{i}/{key}": torch.zeros(()) if key == "step" else torch.zeros_like(parameters[i])
        for i in begun
        for key in keys
    }
    check_tensors(path, "optimiser", dict(found), needed)
    states = {i: {key: found[f"{i}/{key}"] for key in keys} for i in begun}
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": states, "param_groups": groups})


def set_optimiser(
    optimiser: torch.optim.Optimizer, start: Checkpoint, count: int | None, prefix: str = ""
) -> None:
    """Load them from a checkpoint, in which their names begin with the `prefix`; raises UserError
    unless there are `count` (None: unknown).
    """
    found = {k.removeprefix(prefix): v for k, v in start.search.items() if k.startswith(prefix)}
    if count not in (None, len(found)):
        raise UserError(
            f"{start.path} holds {len(found)} tensors of the optimiser, where {count} were written"
        )
    load_optimiser(optimiser, found, start.path)
