"""A YAML configuration of whichever trainer knows its keys."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from policies.kinds import settings_class
from training.settings.config import choices_of, read_overrides, read_yaml
from training.trainers import bc_config, es_config, implicit_bc_config, ppo_config
from training.trainers.bc_config import BCConfig
from training.trainers.es_config import ESConfig
from training.trainers.implicit_bc_config import ImplicitBCConfig
from training.trainers.ppo_config import PPOConfig

__all__ = ["TRAINERS", "JobConfig", "load_any_config"]

JobConfig = ESConfig | BCConfig | ImplicitBCConfig | PPOConfig
Load = Callable[[str | Path, list[str]], JobConfig]

TRAINERS: dict[type[Any], Load] = {
    ESConfig: es_config.load_config,
    BCConfig: bc_config.load_config,
    ImplicitBCConfig: implicit_bc_config.load_config,
    PPOConfig: ppo_config.load_config,
}
"""Configuration of each trainer and how it is loaded; a new trainer is a line here."""


def load_any_config(
    path: str | Path, overrides: list[str], among: Collection[type[Any]] = tuple(TRAINERS)
) -> JobConfig:
    """The configuration of the `trainer` that is named, if one is, whose policy has the
    `policy.name` that is given, if one is, and which knows most of the keys; the first of equals,
    `among` these.

    Raises UserError when the file cannot be read, or by that trainer's rules.
    """
    data, changes = read_yaml(path), read_overrides(overrides)
    trainer = changes.get("trainer", data.get("trainer"))
    asked = _asked_policy(data, changes)
    named = [cls for cls in among if trainer in (None, _trainer_of(cls))] or [*among]
    kinds = [cls for cls in named if asked is None or asked in _policies_of(cls)] or named
    given = data.keys() | changes.keys()
    knows_most = max(kinds, key=lambda cls: len(given & {part.name for part in fields(cls)}))
    return TRAINERS[knows_most](path, overrides)


def _asked_policy(data: dict[str, Any], changes: dict[str, Any]) -> Any:
    """Class of the policy's settings that `policy.name` asks for; None without, or unknown."""
    given, changed = (part.get("policy") for part in (data, changes))
    policy = {**changed} if isinstance(changed, dict) else {}
    if "name" not in policy and isinstance(given, dict):
        policy = {**given, **policy}
    if "name" not in policy:
        return None
    try:
        return settings_class(policy)
    except ValueError:
        return None


def _policies_of(cls: type[Any]) -> list[type[Any]]:
    """Classes of the policies' settings that a trainer takes."""
    return [*choices_of(cls.__pydantic_fields__["policy"].annotation).values()]


def _trainer_of(cls: type[Any]) -> Any:
    return cls.__pydantic_fields__["trainer"].default
