"""Building a policy from its settings."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, overload

import gymnasium
import torch
from pydantic import TypeAdapter, ValidationError

from policies.config import PolicyConfig
from policies.geometry import Geometry
from policies.iap import ImplicitAttentionPolicy
from policies.size import MOST_NUMBERS, check_size
from policies.vision_config import VisionPolicyConfig
from policies.vision_policy import VisionPerformerPolicy

__all__ = ["CONFIGS", "build", "build_for"]

CONFIGS: dict[str, type[PolicyConfig] | type[VisionPolicyConfig]] = {
    "implicit_attention": PolicyConfig,
    "vision_performer": VisionPolicyConfig,
}
"""Settings of each kind of policy by its `name`; settings without a name are the first's."""


@overload
def build(
    config: PolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
) -> ImplicitAttentionPolicy: ...
@overload
def build(
    config: VisionPolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
) -> VisionPerformerPolicy: ...
@overload
def build(
    config: PolicyConfig | VisionPolicyConfig | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
) -> ImplicitAttentionPolicy | VisionPerformerPolicy: ...
def build(
    config: PolicyConfig | VisionPolicyConfig | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    geometry: Geometry | None = None,
) -> ImplicitAttentionPolicy | VisionPerformerPolicy:
    """A policy with fresh parameters.

    Args:
        config: a `PolicyConfig` or a `VisionPolicyConfig`; or the fields of either as a mapping,
            whose `name` tells which (none: implicit_attention); or a whole run configuration, of
            which the `policy` section and the top-level fields of the same names are taken.
        observation_space, action_space: those of the environment.
        most_numbers: that its tensors may hold, as a file says that is to be loaded into it.
        geometry: what the environment tells of its cameras and footholds, `unwrapped.geometry`;
            None: that of the robot that `policies.geometry.published` recognises, or none.

    Raises:
        ValueError: one sentence, for settings out of range, spaces that the policy does not fit, or
            a policy of more numbers; nothing has been built then.
    """
    if isinstance(config, Mapping):
        config = _read(config)
    spaces = observation_space, action_space
    check_size(config, *spaces, min(most_numbers, MOST_NUMBERS), geometry)
    device = torch.get_default_device()
    with torch.device("cpu"):  # on the meta device no map can be fitted
        made: ImplicitAttentionPolicy | VisionPerformerPolicy
        if isinstance(config, VisionPolicyConfig):
            made = VisionPerformerPolicy(config, *spaces)  # type: ignore[arg-type]
        else:
            made = ImplicitAttentionPolicy(config, *spaces, geometry)
    return made.to(device)


@overload
def build_for(
    config: PolicyConfig, env: gymnasium.Env[Any, Any], most_numbers: int = ...
) -> ImplicitAttentionPolicy: ...
@overload
def build_for(
    config: VisionPolicyConfig, env: gymnasium.Env[Any, Any], most_numbers: int = ...
) -> VisionPerformerPolicy: ...
@overload
def build_for(
    config: PolicyConfig | VisionPolicyConfig | Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
) -> ImplicitAttentionPolicy | VisionPerformerPolicy: ...
def build_for(
    config: PolicyConfig | VisionPolicyConfig | Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = MOST_NUMBERS,
) -> ImplicitAttentionPolicy | VisionPerformerPolicy:
    """As `build`, for an environment: its spaces, and its geometry where it has one."""
    geometry = getattr(env.unwrapped, "geometry", None)
    spaces = env.observation_space, env.action_space
    return build(config, *spaces, most_numbers, geometry=geometry)


def _read(settings: Mapping[str, Any]) -> PolicyConfig | VisionPolicyConfig:
    """The settings of the policy that a mapping describes."""
    run = settings if "policy" in settings else {}
    own = run["policy"] if run else settings
    own = {} if own is None else own
    if not isinstance(own, Mapping):
        raise ValueError(f"policy = {own!r}, where `key: value` pairs are needed")
    name = own.get("name", "implicit_attention")
    if not isinstance(name, str) or name not in CONFIGS:
        raise ValueError(f"policy name must be one of {', '.join(CONFIGS)}, got {name!r}")
    known = sorted(part.name for part in fields(CONFIGS[name]))
    shorthands = {k: v for k, v in run.items() if k in known and k != "name" and v is not None}
    return _validate(CONFIGS[name], {**own, **shorthands}, known)


def _validate(
    cls: type[PolicyConfig] | type[VisionPolicyConfig], settings: dict[str, Any], known: list[str]
) -> PolicyConfig | VisionPolicyConfig:
    """A `cls` from its fields; ValueError names the field, what came, what is allowed."""
    try:
        made: PolicyConfig | VisionPolicyConfig = TypeAdapter(cls).validate_python(settings)
        return made
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key, message = ".".join(str(part) for part in first["loc"]), first["msg"]
    if first["type"] == "unexpected_keyword_argument":
        raise ValueError(f"unknown key {key}; the keys known there are {', '.join(known)}")
    if first["type"] == "value_error":
        raise ValueError(message.removeprefix("Value error, "))
    if first["type"] == "missing":
        raise ValueError(f"{key} is missing")
    raise ValueError(f"{key} = {first['input']!r}, but {message[:1].lower()}{message[1:]}")
