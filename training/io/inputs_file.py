"""A file beside an output that records its inputs from the start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from training.command.files import write_json
from training.io.state_files import State, read_json

__all__ = ["read_inputs", "write_inputs"]


@dataclass(frozen=True, config=State)
class _Inputs:
    inputs: dict[str, Any]


def read_inputs(path: Path) -> dict[str, Any]:
    """The fingerprint that a file holds. Raises UserError if it is damaged."""
    return read_json(_Inputs, path).inputs


def write_inputs(path: Path, inputs: Mapping[str, Any]) -> None:
    """Keep a fingerprint. Raises OSError if it cannot be written."""
    write_json(path, {"inputs": inputs})
