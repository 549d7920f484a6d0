"""The recurrent state of a policy, and its tensors by name."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RecurrentState:
    """State between two steps of an episode; zero or empty at its start."""

    state: Tensor
    """State of a recurrent controller, (batch, state_size)."""
    last: Tensor
    """The last action, as the head codes it, (batch, coded); zeros at first."""
    seen: Any = None
    """State of the memory of a policy that has one, see `recalled`."""

    @property
    def numbers(self) -> int:
        """Size of the state of the whole batch."""
        return sum(part.numel() for part in flatten_state(self, "state").values())


class FlatState:
    """A recurrent state as a dictionary of tensors by name.

    Args:
        memory: the state.
        name: prefix of the tensors' names.
    """

    def __init__(self, memory: RecurrentState, name: str) -> None:
        self.tensors, self._name = flatten_state(memory, name), name
        nothing = {key: part.new_empty(0) for key, part in self.tensors.items()}
        self._kind = unflatten_state(memory, nothing, name)  # the structure alone

    def whole(self, tensors: Mapping[str, Tensor] | None = None) -> RecurrentState:
        """The state with these tensors; by default the current ones."""
        made: RecurrentState = unflatten_state(
            self._kind, self.tensors if tensors is None else tensors, self._name
        )
        return made


def flatten_state(state: Any, name: str) -> dict[str, Tensor]:
    """The tensors of nested dataclasses and NamedTuples, by `name` and the names of their fields,
    joined by underscores."""
    if isinstance(state, Tensor):
        return {name: state}
    found: dict[str, Tensor] = {}
    for key, part in _entries(state):
        found |= flatten_state(part, f"{name}_{key}")
    return found


def unflatten_state(state: Any, tensors: Mapping[str, Tensor], name: str) -> Any:
    """Inverse of `flatten_state`: `state` with these tensors. Empty ones may be absent."""
    if isinstance(state, Tensor):
        return tensors[name] if name in tensors or state.numel() else torch.zeros_like(state)
    made = {key: unflatten_state(part, tensors, f"{name}_{key}") for key, part in _entries(state)}
    if not made:
        return state
    return replace(state, **made) if is_dataclass(state) else state._replace(**made)  # type: ignore[type-var]


def _entries(state: Any) -> list[tuple[str, Any]]:
    if is_dataclass(state):
        return [(part.name, getattr(state, part.name)) for part in fields(state)]
    return list(state._asdict().items()) if hasattr(state, "_asdict") else []
