"""An environment's settings from the keywords of `gymnasium.make`, with errors of one sentence."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

__all__ = ["read_settings"]

T = TypeVar("T")


def read_settings(cls: type[T], settings: Mapping[str, Any]) -> T:
    """A pydantic dataclass from its fields.

    Raises:
        ValueError: one sentence with the setting, what came and what is allowed.
    """
    try:
        return TypeAdapter(cls).validate_python(dict(settings))
    except ValidationError as error:
        raise ValueError(_sentence(cls, error.errors(include_url=False)[0])) from None


def _sentence(cls: type[Any], error: ErrorDetails) -> str:
    key, message = ".".join(str(part) for part in error["loc"]), error["msg"]
    if error["type"] == "unexpected_keyword_argument":
        owner: Any = cls
        for part in error["loc"][:-1]:
            owner = owner.__pydantic_fields__[str(part)].annotation
        known = ", ".join(sorted(owner.__pydantic_fields__))
        return f"unknown setting {key!r}; the settings known there are {known}"
    if error["type"] == "value_error":
        return message.removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{key} is missing"
    return f"{key} = {error['input']!r}, but {message[:1].lower()}{message[1:]}"
