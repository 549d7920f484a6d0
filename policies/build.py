"""Building a policy from its settings."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import gymnasium
from pydantic import TypeAdapter, ValidationError

from policies.config import PolicyConfig
from policies.iap import ImplicitAttentionPolicy

__all__ = ["build"]

_FIELDS = sorted(part.name for part in fields(PolicyConfig))


def build(
    config: PolicyConfig | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
) -> ImplicitAttentionPolicy:
    """A policy with fresh parameters.

    Args:
        config: a `PolicyConfig`; or its fields as a mapping; or a whole run configuration, of
            which the `policy` section and the top-level fields of the same names are taken.
        observation_space, action_space: those of the environment.

    Raises:
        ValueError: one sentence, for settings out of range or spaces that the policy does not fit.
    """
    if not isinstance(config, PolicyConfig):
        if "policy" in config:
            shorthands = {k: v for k, v in config.items() if k in _FIELDS and v is not None}
            config = {**(config["policy"] or {}), **shorthands}
        config = _read(config)
    return ImplicitAttentionPolicy(config, observation_space, action_space)  # type: ignore[arg-type]


def _read(settings: Mapping[str, Any]) -> PolicyConfig:
    """A `PolicyConfig` from its fields; ValueError names the field, what came, what is allowed."""
    try:
        return TypeAdapter(PolicyConfig).validate_python(dict(settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key, message = ".".join(str(part) for part in first["loc"]), first["msg"]
    if first["type"] == "unexpected_keyword_argument":
        raise ValueError(f"unknown key {key}; the keys known there are {', '.join(_FIELDS)}")
    if first["type"] == "value_error":
        raise ValueError(message.removeprefix("Value error, "))
    if first["type"] == "missing":
        raise ValueError(f"{key} is missing")
    raise ValueError(f"{key} = {first['input']!r}, but {message[:1].lower()}{message[1:]}")
