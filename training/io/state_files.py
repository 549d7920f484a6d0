"""State files and checkpoint states, validated as a whole by a dataclass.

A file may have been damaged, edited, or written by someone else: each kind has a dataclass, beside
what writes it, and comes in through `read_json`, or through `check` where it is part of another.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.command.errors import UserError
from training.command.files import read_bytes, reason, write_json
from training.io import config as configuration

T = TypeVar("T")

_DEEPEST = 100

State = ConfigDict(extra="ignore", allow_inf_nan=False)
"""pydantic configuration of such a dataclass; unknown keys of a file are ignored."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A count, or an index from 0."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
"""A finite number."""


def plain_json(text: str | bytes) -> Any:
    """The data of a JSON text. Raise ValueError for other text, or for data nested deeper than any
    file is."""
    try:
        data = json.loads(text)
    except RecursionError:
        level: list[Any] = [None]
    else:
        level = [data] if isinstance(data, dict | list) else []
        for _ in range(_DEEPEST):
            parts = (one.values() if isinstance(one, dict) else one for one in level)
            level = [x for part in parts for x in part if isinstance(x, dict | list)]
    if level:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    return data


def read_json(cls: type[T], path: Path) -> T:
    """Read a JSON file as a `cls`; raises UserError if it is unreadable or invalid."""
    try:
        data = plain_json(read_bytes(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None
    except ValueError as error:
        why = " ".join(str(error).split())
        raise UserError(f"{path} is damaged, or no JSON: {why}") from None
    return check(cls, data, path)


def check(cls: type[T], data: Any, path: Path, prefix: str = "") -> T:
    """A `cls` from plain data that a file holds, under the dotted key `prefix` if one is given.

    Raise UserError, which names the file, the key and the error."""
    if not isinstance(data, dict):
        what = f"{prefix.removesuffix('.')} is" if prefix else "it is"
        raise UserError(
            f"{path} is damaged, or another kind of file: {what} of type {type(data).__name__}, "
            "where keys with values are needed"
        )
    return configuration.validate(cls, data, f"{path} is damaged, or another kind of file", prefix)


@dataclass(frozen=True, config=State)
class _Inputs:
    inputs: dict[str, Any]


def read_inputs(path: Path) -> dict[str, Any]:
    """The fingerprint that a file beside an output holds. Raises UserError if it is damaged."""
    return read_json(_Inputs, path).inputs


def write_inputs(path: Path, inputs: Mapping[str, Any]) -> None:
    """Write a fingerprint of the inputs beside an output. Raises OSError."""
    write_json(path, {"inputs": inputs})
