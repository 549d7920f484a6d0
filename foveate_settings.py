"""One-sentence errors for invalid settings, from pydantic's errors.

Policies, environments and configurations all read settings, and none of these packages imports
another. The name of this module is one that no folder of a user hides.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def sentence(
    error: Mapping[str, Any],
    known: Iterable[str] = (),
    *,
    key: str | None = None,
    noun: str = "key",
    shown: Callable[[Any], str] = repr,
) -> str:
    """The sentence of one of a ValidationError's `errors()`.

    Args:
        error: its type, place, message and input.
        known: the settings known where an unknown one was given.
        key: the setting, dotted where nested (default: pydantic's place).
        noun: what a setting is called.
        shown: how a value is written.
    """
    name = ".".join(str(part) for part in error["loc"]) if key is None else key
    message: str = error["msg"]
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        there = ", ".join(sorted(known))
        return f"unknown {noun} {name}; the {noun}s known there are {there}"
    if error["type"] == "value_error":
        return message.removeprefix("Value error, ")
    if error["type"] in ("missing", "missing_argument"):
        return f"{name} is missing"
    return f"{name} = {shown(error['input'])}, but {message[:1].lower()}{message[1:]}"
