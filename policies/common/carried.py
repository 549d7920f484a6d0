"""What a policy carries from step to step, and its tensors by their names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["Apart", "Memory", "filled", "named"]


@dataclass(frozen=True)
class Memory:
    """What a policy carries from step to step of an episode; nothing at its beginning."""

    state: Tensor
    """Of a recurrent controller, (batch, state_size)."""
    last: Tensor
    """The action before, as the head codes it, (batch, coded); zeros where there was none."""
    seen: Any = None
    """What a policy with a memory of its own carries of what it saw, see `recalled`."""

    @property
    def numbers(self) -> int:
        """How many are carried, of the whole batch."""
        return sum(part.numel() for part in named(self, "carried").values())


class Apart:
    """What is carried as tensors by their names, which is whole again where it is asked for.

    Args:
        memory: what is carried now.
        name: that the tensors' names begin with.
    """

    def __init__(self, memory: Memory, name: str) -> None:
        self.tensors, self._name = named(memory, name), name
        nothing = {key: part.new_empty(0) for key, part in self.tensors.items()}
        self._kind = filled(memory, nothing, name)  # a memory's numbers are not held twice

    def whole(self, tensors: Mapping[str, Tensor] | None = None) -> Memory:
        """Of these tensors, or of those that are carried."""
        made: Memory = filled(self._kind, self.tensors if tensors is None else tensors, self._name)
        return made


def named(state: Any, name: str) -> dict[str, Tensor]:
    """The tensors of nested dataclasses and NamedTuples, by `name` and the names of their fields,
    joined by underscores."""
    if isinstance(state, Tensor):
        return {name: state}
    found: dict[str, Tensor] = {}
    for key, part in _entries(state):
        found |= named(part, f"{name}_{key}")
    return found


def filled(state: Any, tensors: Mapping[str, Tensor], name: str) -> Any:
    """The same as `state` with other tensors, by the names that `named` gives them. Those that are
    empty may be absent."""
    if isinstance(state, Tensor):
        return tensors[name] if name in tensors or state.numel() else torch.zeros_like(state)
    made = {key: filled(part, tensors, f"{name}_{key}") for key, part in _entries(state)}
    if not made:
        return state
    return replace(state, **made) if is_dataclass(state) else state._replace(**made)  # type: ignore[type-var]


def _entries(state: Any) -> list[tuple[str, Any]]:
    if is_dataclass(state):
        return [(part.name, getattr(state, part.name)) for part in fields(state)]
    return list(state._asdict().items()) if hasattr(state, "_asdict") else []
