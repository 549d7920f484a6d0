"""What the configurations of all trainers share: shorthands, and the environment's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from training import config as configuration
from training.config import read_yaml
from training.environments import ENVIRONMENTS

__all__ = ["SHORTHANDS", "describe_job", "load_job", "missing_keys"]

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
        known = ENVIRONMENTS.get(str(data.get("env_id", getattr(cls, "env_id", None))))
        return configuration.keys(cls) + (
            configuration.keys(known.settings, "env.") if known is not None else []
        )

    data = configuration.dump(configuration.load(cls, path, overrides, SHORTHANDS, names))
    source = configuration.source(path, overrides)
    known = ENVIRONMENTS.get(data["env_id"])
    if known is not None:
        env = configuration.validate(known.settings, data["env"], source, "env.", names(data))
        data["env"] = configuration.dump(env)
    configuration.fill_shorthands(data, SHORTHANDS, source)
    return configuration.validate(cls, data, source)


def missing_keys(path: str | Path) -> dict[str, Any]:
    """What a run of an earlier version did, for keys that its `config.yaml` does not know."""
    known = read_yaml(path)
    return {key: value for key, value in _BEFORE.items() if key not in known}


def describe_job(cls: type[Any]) -> str:
    """Every field for --help, and those of its default environment: key, default, type, unit."""
    env = configuration.describe(ENVIRONMENTS[cls.env_id].settings, "env.")
    return f"{configuration.describe(cls)}\n{env}"
