"""Limits of a policy's settings, checked before anything is built."""

from typing import Any

import gymnasium

from attention.registry import options_of
from policies.common.geometry import Geometry
from policies.common.limits import check_numbers
from policies.common.policy_inputs import Sight
from policies.implicit_attention.config import SeeingConfig
from policies.vision_performer.config import VisionPolicyConfig

__all__ = ["check_size"]

_MOST_TOKENS = 2**15
"""Of all images: two cameras of 96 x 128 pixels have 24,576; exact attention takes seconds."""
_MOST_SEEN = 2**28
"""Numbers of all tokens together, which overlapping patches multiply."""
_MOST_FEATURES, _MOST_HYBRID_FEATURES, _MOST_OF_HEADS = 2**12, 2**14, 2**16
"""Random vectors m of a map; for hybrids, whose features are products, m n, or m for each pair of
clusters; and m in all heads together: tens of times what pays."""
_MOST_SEARCHED = 4 * 10**7
"""Numbers that a search for an action computes in its widest layer, over all rounds."""
_MOST_LAYERS = 64


def check_size(
    config: Any,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most: int,
    geometry: Geometry | None = None,
) -> None:
    """Raise ValueError for settings that compute with more than `MOST_NUMBERS` numbers at once, or
    whose widths alone allocate more than `most`, and for spaces that do not fit."""
    _check_features(config)
    if len(config.hidden) > _MOST_LAYERS:
        raise ValueError(f"hidden must be at most {_MOST_LAYERS} widths, got {len(config.hidden)}")
    spaces = observation_space, action_space
    sight = None
    if isinstance(config, VisionPolicyConfig):
        tokens = _tokens(config, observation_space)
    else:
        sight = Sight(config, *spaces, geometry)
        tokens = sight.tokens
    if tokens > _MOST_TOKENS:
        raise ValueError(
            f"patch = {list(config.patch)} makes {tokens} tokens of the image, where there can be "
            f"at most {_MOST_TOKENS}"
        )
    if sight is not None and tokens * sight.size > _MOST_SEEN:
        raise ValueError(
            f"patch = {list(config.patch)} makes {tokens} tokens of {sight.size} numbers, where "
            f"there can be at most {_MOST_SEEN} numbers in all"
        )
    width = getattr(config, "embed_dim", 0)
    squares = 4 * config.depth if getattr(config, "attend", False) else 1
    check_numbers(width * max(squares * width, tokens), most)  # before tables and feature maps
    if isinstance(config, VisionPolicyConfig):
        _check_search(config)


def _check_search(config: VisionPolicyConfig) -> None:
    """ValueError for a search that takes minutes for an action."""
    searched = config.samples * config.rounds * max(config.hidden)
    if searched > _MOST_SEARCHED:
        raise ValueError(
            f"samples = {config.samples}, rounds = {config.rounds} and hidden = "
            f"{list(config.hidden)} compute {searched} numbers for an action, where there can be "
            f"at most {_MOST_SEARCHED}"
        )


def _check_features(config: SeeingConfig | VisionPolicyConfig) -> None:
    """ValueError for a feature map of more features than a token can have."""
    m, n = config.num_features, config.num_lambda_features
    if m > _MOST_FEATURES:
        raise ValueError(f"num_features must be at most {_MOST_FEATURES}, got {m}")
    declared = options_of(config.feature_map)
    if "base" in declared and m * n > _MOST_HYBRID_FEATURES:
        raise ValueError(
            f"num_features times num_lambda_features must be at most {_MOST_HYBRID_FEATURES} with "
            f"the feature map {config.feature_map}, got {m} times {n}"
        )
    heads = getattr(config, "heads", 1)
    if m * heads > _MOST_OF_HEADS:
        raise ValueError(
            f"num_features times heads must be at most {_MOST_OF_HEADS}, got {m} times {heads}"
        )
    k = config.num_clusters
    if "num_query_clusters" in declared and m * k * k > _MOST_HYBRID_FEATURES:
        raise ValueError(
            f"num_features times num_clusters squared must be at most {_MOST_HYBRID_FEATURES} with "
            f"the feature map clustered_hybrid, got {m} times {k} squared"
        )


def _tokens(config: VisionPolicyConfig, observation_space: gymnasium.Space[Any]) -> int:
    """The number of tokens of an image; 0 for another observation."""
    image = _shape(observation_space, "rgb")
    if len(image) != 3:
        return 0
    height, width = (side // config.image_scale for side in image[:2])
    return (height // config.patch[0]) * (width // config.patch[1])


def _shape(space: gymnasium.Space[Any], key: str) -> tuple[int, ...]:
    """The shape of a part of a Dict space; () if there is none."""
    parts = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {}
    return getattr(parts.get(key), "shape", None) or ()
