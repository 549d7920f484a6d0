"""Building a policy from its settings."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import gymnasium
from pydantic import TypeAdapter

from policies.config import PolicyConfig
from policies.iap import ImplicitAttentionPolicy

__all__ = ["build"]


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
        ValueError: for settings out of range or spaces that the policy does not fit.
    """
    if not isinstance(config, PolicyConfig):
        known = {field.name for field in fields(PolicyConfig)}
        if "policy" in config:
            shorthands = {k: v for k, v in config.items() if k in known and v is not None}
            config = {**(config["policy"] or {}), **shorthands}
        config = TypeAdapter(PolicyConfig).validate_python(config)
    return ImplicitAttentionPolicy(config, observation_space, action_space)  # type: ignore[arg-type]
