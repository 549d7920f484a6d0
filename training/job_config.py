"""What the configurations of all trainers share: shorthands, and the environment's settings."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from training import config as configuration
from training.environments import settings_class

__all__ = ["SHORTHANDS", "as_before", "describe_job", "load_job", "missing_keys", "resolved"]

T = TypeVar("T")

SHORTHANDS = {
    "episode_s": "env.episode_s",
    "feature_map": "policy.feature_map",
    "num_features": "policy.num_features",
    "num_lambda_features": "policy.num_lambda_features",
}
"""Top-level keys, and the nested ones that they stand for."""

_BEFORE: dict[str, Any] = {"fit_after": None}
"""Keys that were added since, and the values that stand for what was done without them."""


def load_job(cls: type[T], path: str | Path, overrides: list[str]) -> T:
    """A trainer's configuration, every default filled in; UserError when something is wrong."""

    def names(data: dict[str, Any]) -> list[str]:
        return _names(cls, data)

    data = configuration.dump(configuration.load(cls, path, overrides, SHORTHANDS, names))
    source = configuration.source(path, overrides)
    return configuration.validate(cls, _with_defaults(cls, data, source), source)


def resolved(cls: type[Any], data: dict[str, Any], source: str) -> dict[str, Any]:
    """Plain data of a configuration that an earlier version may have written, every default of this
    one filled in; UserError names the `source` when something is wrong."""
    data = {**missing_keys(data), **data}
    given = configuration.dump(configuration.validate(cls, data, source))
    whole = _with_defaults(cls, given, source)
    return configuration.dump(configuration.validate(cls, whole, source))


def _names(cls: type[Any], data: dict[str, Any]) -> list[str]:
    settings = settings_class(str(data.get("env_id", getattr(cls, "env_id", ""))))
    return configuration.keys(cls) + (
        [] if settings is None else configuration.keys(settings, "env.")
    )


def _with_defaults(cls: type[Any], data: dict[str, Any], source: str) -> dict[str, Any]:
    settings = settings_class(data["env_id"])
    if settings is not None:
        names = _names(cls, data)
        env = configuration.validate(settings, data["env"], source, "env.", names)
        data["env"] = configuration.dump(env)
    configuration.fill_shorthands(data, SHORTHANDS, source)
    return data


def missing_keys(known: Collection[str]) -> dict[str, Any]:
    """What a run of an earlier version did, for keys that its configuration does not know."""
    return {key: value for key, value in _BEFORE.items() if key not in known}


def as_before(known: Collection[str]) -> list[str]:
    """The same as overrides of that configuration."""
    return [f"{key}={json.dumps(value)}" for key, value in missing_keys(known).items()]


def describe_job(cls: type[Any]) -> str:
    """Every field for --help, and those of its default environment: key, default, type, unit."""
    env = configuration.describe(settings_class(cls.env_id), "env.")
    return f"{configuration.describe(cls)}\n{env}"
