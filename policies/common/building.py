"""Building a policy from its settings."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, overload

import gymnasium
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from foveate_settings import sentence
from policies.common.geometry import Geometry
from policies.common.kinds import CONFIGS, AnyPolicyConfig, OwnPolicyConfig, settings_class
from policies.common.own import admit, build_own
from policies.common.size import MOST_NUMBERS, check_size
from policies.implicit_attention.config import PolicyConfig
from policies.implicit_attention.policy import ImplicitAttentionPolicy
from policies.place_memory.config import PlaceMemoryConfig
from policies.place_memory.policy import PlaceMemoryPolicy
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig
from policies.vision_performer.policy import VisionPerformerPolicy, fits_implicit
from policies.vision_performer.pooled import PooledVisionPerformer

__all__ = ["CONFIGS", "build", "build_for"]


@overload
def build(
    config: PolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    typed: bool = ...,
) -> ImplicitAttentionPolicy: ...
@overload
def build(
    config: PooledPolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    typed: bool = ...,
) -> PooledVisionPerformer: ...
@overload
def build(
    config: PlaceMemoryConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    typed: bool = ...,
) -> PlaceMemoryPolicy: ...
@overload
def build(
    config: VisionPolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    typed: bool = ...,
) -> VisionPerformerPolicy: ...
@overload
def build(
    config: AnyPolicyConfig | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    typed: bool = ...,
) -> Any: ...
def build(
    config: AnyPolicyConfig | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    geometry: Geometry | None = None,
    typed: bool = True,
) -> nn.Module:
    """A policy with fresh parameters.

    Args:
        config: the settings of a policy; or their fields as a mapping, whose `name` tells which
            policy (none: implicit_attention), where a class stands for "module:Class"; or a whole
            run configuration, of which the `policy` section and the top-level fields of the same
            names are taken. A vision_performer without a `form` is the implicit one where spaces
            and keys are such, else the pooled one.
        observation_space, action_space: those of the environment.
        most_numbers: that its tensors may hold, as a file says that is to be loaded into it.
        geometry: what the environment tells of its cameras and footholds, `unwrapped.geometry`;
            None: that of the robot that `policies.common.geometry.published` recognises, or none.
        typed: whether the user gave the settings: "module:Class" in them is imported. Give False
            for those that stand in a file of somebody else.

    Raises:
        ValueError: one sentence, for settings out of range, spaces that the policy does not fit, or
            a policy of more numbers; nothing has been built then.
    """
    spaces = observation_space, action_space
    if isinstance(config, Mapping):
        config = _read(config, *spaces)
    if typed:
        admit(vars(config))
    most_numbers = min(most_numbers, MOST_NUMBERS)
    if not isinstance(config, OwnPolicyConfig):
        check_size(config, *spaces, most_numbers, geometry)
    device = torch.get_default_device()
    with torch.device("cpu"):  # on the meta device no map can be fitted
        made: nn.Module
        if isinstance(config, OwnPolicyConfig):
            made = build_own(config, *spaces, geometry, most_numbers)
        elif isinstance(config, VisionPolicyConfig):
            made = VisionPerformerPolicy(config, *spaces)  # type: ignore[arg-type]
        elif isinstance(config, PooledPolicyConfig):
            made = PooledVisionPerformer(config, *spaces, geometry)
        elif isinstance(config, PlaceMemoryConfig):
            made = PlaceMemoryPolicy(config, *spaces, geometry)
        else:
            made = ImplicitAttentionPolicy(config, *spaces, geometry)
    return made.to(device)


@overload
def build_for(
    config: PolicyConfig,
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    typed: bool = ...,
) -> ImplicitAttentionPolicy: ...
@overload
def build_for(
    config: PooledPolicyConfig,
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    typed: bool = ...,
) -> PooledVisionPerformer: ...
@overload
def build_for(
    config: PlaceMemoryConfig,
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    typed: bool = ...,
) -> PlaceMemoryPolicy: ...
@overload
def build_for(
    config: VisionPolicyConfig,
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    typed: bool = ...,
) -> VisionPerformerPolicy: ...
@overload
def build_for(
    config: AnyPolicyConfig | Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    typed: bool = ...,
) -> Any: ...
def build_for(
    config: AnyPolicyConfig | Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    typed: bool = True,
) -> nn.Module:
    """As `build`, for an environment: its spaces, and its geometry where it has one."""
    geometry = getattr(env.unwrapped, "geometry", None)
    spaces = env.observation_space, env.action_space
    made: nn.Module = build(config, *spaces, most_numbers, geometry=geometry, typed=typed)
    return made


def _read(settings: Mapping[str, Any], *spaces: gymnasium.Space[Any]) -> AnyPolicyConfig:
    """The settings of the policy that a mapping describes."""
    run = settings if "policy" in settings else {}
    own = run["policy"] if run else settings
    own = {} if own is None else own
    if not isinstance(own, Mapping):
        raise ValueError(f"policy = {own!r}, where `key: value` pairs are needed")
    cls = settings_class(own)
    known = [part.name for part in fields(cls)]
    if cls is VisionPolicyConfig and "form" not in own and not fits_implicit(*spaces):
        pooled = [part.name for part in fields(PooledPolicyConfig)]
        if own.keys() <= {*pooled}:
            cls, known = PooledPolicyConfig, pooled
    shorthands = {k: v for k, v in run.items() if k in known and k != "name" and v is not None}
    made: AnyPolicyConfig = _validate(cls, {**own, **shorthands}, sorted(known))
    return made


def _validate(cls: type[Any], settings: dict[str, Any], known: list[str]) -> Any:
    """A `cls` from its fields; ValueError names the field, what came, what is allowed."""
    try:
        return TypeAdapter(cls).validate_python(settings)
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0], known)) from None
