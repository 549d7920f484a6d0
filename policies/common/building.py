"""Building a policy from its settings, whose limits are checked beforehand."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, overload

import gymnasium
import torch
from pydantic import TypeAdapter, ValidationError

from attention.registry import options_of
from foveate_settings import sentence
from policies.common.geometry import Geometry, geometry_of
from policies.common.kinds import AnyPolicyConfig, CustomPolicyConfig, settings_class
from policies.common.limits import MOST_NUMBERS, build_within, check_numbers, count_numbers
from policies.common.plugins import admit
from policies.common.policy_inputs import PolicyInputs
from policies.common.settings import Buildable, BuiltPolicy
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig
from policies.vision_performer.policy import fits_implicit, observed

_MOST_TOKENS = 2**15
"""Largest number of tokens of all images; two cameras of 96 x 128 pixels have 24,576."""
_MOST_SEEN = 2**28
"""Largest total size of all tokens, which overlapping patches multiply."""
_MOST_FEATURES, _MOST_HYBRID_FEATURES, _MOST_OF_HEADS = 2**12, 2**14, 2**16
"""Random vectors m of a map; for hybrids, whose features are products, m n, or m for each pair of
clusters; and m in all heads together: tens of times what pays."""
_MOST_SEARCHED = 4 * 10**7
"""Numbers that a search for an action computes in its widest layer, over all rounds."""
_MOST_LAYERS = 64


@overload
def build(
    config: Buildable[BuiltPolicy],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    geometry: Geometry | None = None,
    trusted: bool = True,
) -> BuiltPolicy: ...
@overload
def build(
    config: Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    geometry: Geometry | None = None,
    trusted: bool = True,
) -> Any: ...
def build(
    config: Buildable[Any] | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    geometry: Geometry | None = None,
    trusted: bool = True,
) -> Any:
    """Build a policy with fresh parameters.

    Type checkers know its class where `config` is a configuration class such as `PolicyConfig`.

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
        if isinstance(config, CustomPolicyConfig):  # limited only if settings come from a file
            if most_numbers < MOST_NUMBERS:
                check_numbers(count_numbers(make), most_numbers)
            return make().to(device)
        _check_size(config, *spaces, most_numbers, geometry)
        return build_within(most_numbers, make).to(device)


@overload
def build_for(
    config: Buildable[BuiltPolicy],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    trusted: bool = True,
) -> BuiltPolicy: ...
@overload
def build_for(
    config: Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    trusted: bool = True,
) -> Any: ...
def build_for(
    config: Buildable[Any] | Mapping[str, Any],
    env: gymnasium.Env[Any, Any],
    most_numbers: int = MOST_NUMBERS,
    *,
    trusted: bool = True,
) -> Any:
    """Build a policy for an environment: for its spaces, and its geometry if it has one.

    Arguments and errors are those of `build`.
    """
    geometry = geometry_of(env)
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
    try:
        made: AnyPolicyConfig = TypeAdapter(cls).validate_python({**own, **shorthands})
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0], sorted(known))) from None
    return made


def _check_size(
    config: Any,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most: int,
    geometry: Geometry | None = None,
) -> None:
    """Raise ValueError for settings that compute with more than `MOST_NUMBERS` numbers at once, or
    whose widths alone allocate more than `most`, and for spaces that do not fit."""
    m, n, k = config.num_features, config.num_lambda_features, config.num_clusters
    declared, heads = options_of(config.feature_map), getattr(config, "heads", 1)
    _refuse(m > _MOST_FEATURES, f"num_features must be at most {_MOST_FEATURES}, got {m}")
    _refuse(
        "base" in declared and m * n > _MOST_HYBRID_FEATURES,
        f"num_features times num_lambda_features must be at most {_MOST_HYBRID_FEATURES} with the "
        f"feature map {config.feature_map}, got {m} times {n}",
    )
    _refuse(
        m * heads > _MOST_OF_HEADS,
        f"num_features times heads must be at most {_MOST_OF_HEADS}, got {m} times {heads}",
    )
    _refuse(
        "num_query_clusters" in declared and m * k * k > _MOST_HYBRID_FEATURES,
        f"num_features times num_clusters squared must be at most {_MOST_HYBRID_FEATURES} with the "
        f"feature map clustered_hybrid, got {m} times {k} squared",
    )
    _refuse(
        len(config.hidden) > _MOST_LAYERS,
        f"hidden must be at most {_MOST_LAYERS} widths, got {len(config.hidden)}",
    )
    if isinstance(config, VisionPolicyConfig):
        (height, width, _), _ = observed(observation_space)
        rows, columns = (side * config.image_scale for side in config.patch)
        tokens, size = (height // rows) * (width // columns), 0
    else:
        inputs = PolicyInputs(config, observation_space, action_space, geometry)
        tokens, size = inputs.tokens, inputs.size
    made = f"patch = {list(config.patch)} makes {tokens} tokens of"
    _refuse(tokens > _MOST_TOKENS, f"{made} the image, where there can be at most {_MOST_TOKENS}")
    _refuse(
        tokens * size > _MOST_SEEN,
        f"{made} {size} numbers, where there can be at most {_MOST_SEEN} numbers in all",
    )
    width = getattr(config, "embed_dim", 0)
    squares = 4 * config.depth if getattr(config, "attend", False) else 1
    check_numbers(width * max(squares * width, tokens), most)  # before tables and feature maps
    if isinstance(config, VisionPolicyConfig):
        searched = config.samples * config.rounds * max(config.hidden)
        _refuse(
            searched > _MOST_SEARCHED,  # a search of minutes for an action
            f"samples = {config.samples}, rounds = {config.rounds} and hidden = "
            f"{list(config.hidden)} compute {searched} numbers for an action, where there can be "
            f"at most {_MOST_SEARCHED}",
        )


def _refuse(exceeds: bool, message: str) -> None:
    if exceeds:
        raise ValueError(message)
