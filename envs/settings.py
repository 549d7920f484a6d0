"""Strict validation of an environment's settings, options, seeds and actions.

Settings are as strict as those of a YAML file: True is no number, "no" is no boolean, and an
integer passes for a number. NumPy's scalars and arrays, lists and tuples are converted to plain
values."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from foveate_settings import sentence

__all__ = ["check_render_mode", "read_action", "read_options", "read_seed", "read_settings"]

T = TypeVar("T")

_LONGEST = 200  # characters of what came that an error shows
_NAMES = {
    "valid array": "valid tuple",
    "an object": "a mapping of settings",
    "valid boolean": "valid boolean, True or False",
}
"""pydantic's names of types, in JSON's terms."""


def read_settings(cls: type[T], settings: Mapping[str, Any]) -> T:
    """A pydantic dataclass from its fields.

    Raises:
        ValueError: one sentence with the setting, the received value and the allowed ones.
    """
    plain = {}
    for key, value in settings.items():
        try:
            plain[key] = _plain(value)
            json.dumps(plain[key], ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError):
            raise ValueError(
                f"{key} = {_shown(value)}, but settings are plain values: numbers, strings, "
                "True, False, and lists, arrays or mappings of them"
            ) from None
    try:
        # As JSON: strict about numbers and booleans, yet a list will do for a tuple.
        return TypeAdapter(cls).validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        raise ValueError(_sentence(cls, error.errors(include_url=False)[0], plain)) from None


def read_options(options: Any, known: Collection[str] = ()) -> dict[str, Any]:
    """The `options` of `reset`, which may hold `known` names.

    Raises:
        ValueError: one sentence, unless they are a mapping with known names only.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(f"options of reset must be a mapping or None, got {_shown(options)}")
    unknown = ", ".join(sorted(str(name) for name in options if name not in known))
    if unknown and known:
        raise ValueError(f"options of reset may hold {' and '.join(known)}, got {unknown}")
    if unknown:
        raise ValueError(f"reset takes no options, got {unknown}")
    return dict(options)


def read_seed(seed: Any, name: str = "seed") -> int | None:
    """A seed, an integer of any kind, or None.

    Raises:
        ValueError: one sentence, for anything else.
    """
    found = _plain(seed)
    if found is None:
        return None
    if type(found) is not int or found < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {_shown(found)}")
    return found


def read_action(action: Any, size: int) -> NDArray[np.float64]:
    """An action, a copy (size,).

    Raises:
        ValueError: one sentence, unless it holds `size` finite numbers.
    """
    try:
        given = np.asarray(action)
    except (TypeError, ValueError, RuntimeError):  # of ragged lists, and of tensors with gradients
        given = np.array(None)
    if given.dtype.kind not in "iuf":
        raise ValueError(f"action must be {size} finite numbers, got {_shown(action)}")
    if given.shape != (size,):
        raise ValueError(f"action must be {size} finite numbers, got shape {given.shape}")
    if given.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            given = given.astype(np.float64)
    found = given.astype(np.float64)
    if not all(map(isfinite, found.tolist())):
        raise ValueError(f"action must be {size} finite numbers, got {_shown(given.tolist())}")
    return found


def check_render_mode(render_mode: Any) -> None:
    """Raises ValueError, in a sentence, unless it is None or one of the two modes."""
    if render_mode is not None and (
        not isinstance(render_mode, str) or render_mode not in ("rgb_array", "human")
    ):
        raise ValueError(f"render_mode must be rgb_array, human or None, got {_shown(render_mode)}")


def _plain(value: Any) -> Any:
    """The content of NumPy's scalars and arrays, tuples, mappings and dataclasses as JSON data."""
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _shown(value: Any) -> str:
    """Return a received value as text on one line."""
    try:
        text = " ".join(repr(value).split())
    except (TypeError, ValueError, RuntimeError):  # of integers of more digits than Python prints
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _known(cls: Any, loc: Sequence[int | str]) -> Collection[str]:
    """The known settings at the place of an unknown one."""
    owner = cls
    for part in loc[:-1]:
        own = getattr(owner, "__pydantic_fields__", None)
        # Of a mapping, the part is one of its keys.
        owner = get_args(owner)[1] if own is None else own[str(part)].annotation
    found: Collection[str] = owner.__pydantic_fields__
    return found


def _sentence(cls: type[Any], error: ErrorDetails, settings: Any) -> str:
    if error["type"] == "unexpected_keyword_argument":
        key = ".".join(str(part) for part in error["loc"])
        known = _known(cls, error["loc"])
        return sentence({**error}, known, key=repr(key), noun="setting")
    if error["type"] in ("value_error", "missing"):
        return sentence({**error})
    came = settings
    for part in error["loc"]:  # pydantic shows NaN as None
        came = came[part]
    message = error["msg"]
    for json_name, name in _NAMES.items():
        message = message.replace(json_name, name)
    return sentence({**error, "input": came, "msg": message}, shown=_shown)
