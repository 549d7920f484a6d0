"""Building a policy from its settings."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Protocol, TypeVar, overload

import gymnasium
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from foveate_settings import sentence
from policies.common.geometry import Geometry
from policies.common.kinds import CONFIGS, AnyPolicyConfig, OwnPolicyConfig, settings_class
from policies.common.limits import MOST_NUMBERS, build_within, check_numbers, count_numbers
from policies.common.own import admit
from policies.common.size import check_size
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig
from policies.vision_performer.policy import fits_implicit

__all__ = ["CONFIGS", "PolicyFactory", "build", "build_for"]

P_co = TypeVar("P_co", bound=nn.Module, covariant=True)


class PolicyFactory(Protocol[P_co]):
    """Settings that build their policy, as those of every kind do."""

    def build(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> P_co: ...


@overload
def build(
    config: PolicyFactory[P_co],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    trusted: bool = ...,
) -> P_co: ...
@overload
def build(
    config: Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = ...,
    *,
    geometry: Geometry | None = ...,
    trusted: bool = ...,
) -> Any: ...
def build(
    config: PolicyFactory[Any] | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    geometry: Geometry | None = None,
    trusted: bool = True,
) -> Any:
    """Build a policy with fresh parameters.

    Args:
        config: the settings of a policy; or their fields as a mapping, whose `name` tells which
            policy (none: implicit_attention), where a class stands for "module:Class"; or a whole
            run configuration, of which the `policy` section and the top-level fields of the same
            names are taken. A vision_performer without a `form` is the implicit one where spaces
            and keys are such, else the pooled one.
        observation_space, action_space: those of the environment.
        most_numbers: limit on the number of tensor elements, given by the file to be loaded.
        geometry: the environment's cameras and footholds, `unwrapped.geometry`;
            None: the geometry recognised by `policies.common.geometry.published`, or none.
        trusted: whether the user gave the settings: "module:Class" in them is imported. Pass False
        for settings from an untrusted file.

    Raises:
        ValueError: for settings out of range, spaces that the policy does not fit, or a policy with
            too many numbers; nothing is built in that case.
    """
    spaces = observation_space, action_space
    if isinstance(config, Mapping):
        config = _read(config, *spaces)
    if trusted:
        admit(vars(config))
    device, most_numbers = torch.get_default_device(), min(most_numbers, MOST_NUMBERS)
    make = partial(config.build, *spaces, geometry)
    with torch.device("cpu"):  # feature maps cannot be fitted on the meta device
        if isinstance(config, OwnPolicyConfig):  # unlimited, unless the settings come from a file
            if most_numbers < MOST_NUMBERS:
                check_numbers(count_numbers(make), most_numbers)
            return make().to(device)
        check_size(config, *spaces, most_numbers, geometry)
        return build_within(most_numbers, make).to(device)


@overload
def build_for(
    config: PolicyFactory[P_co],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    trusted: bool = ...,
) -> P_co: ...
@overload
def build_for(
    config: Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = ...,
    *,
    trusted: bool = ...,
) -> Any: ...
def build_for(
    config: PolicyFactory[Any] | Mapping[str, Any], env: gymnasium.Env[Any, Any],
    most_numbers: int = MOST_NUMBERS, *, trusted: bool = True,
) -> Any:  # fmt: skip
    """Build a policy for an environment: for its spaces, and its geometry if it has one.

    Arguments and errors are those of `build`.
    """
    geometry = getattr(env.unwrapped, "geometry", None)
    spaces = env.observation_space, env.action_space
    return build(config, *spaces, most_numbers, geometry=geometry, trusted=trusted)


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
    """Build a `cls` from its fields; errors name the field, its value and what is allowed."""
    try:
        return TypeAdapter(cls).validate_python(settings)
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0], known)) from None
