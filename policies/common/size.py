"""How large a policy is, from its settings alone: known before anything of it takes memory."""

import math
from itertools import pairwise
from typing import Any

import gymnasium

from policies.common.geometry import Geometry
from policies.common.recurrent import GATES
from policies.common.sight import Sight
from policies.common.waves import waves_size
from policies.implicit_attention.config import EXACT, HYBRIDS, PolicyConfig, SeeingConfig
from policies.implicit_attention.tokens import PLACE
from policies.place_memory.config import (
    CHOICE_INPUTS,
    KEY_HIDDEN,
    KEY_INPUTS,
    KEY_OUTPUTS,
    PlaceMemoryConfig,
)
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig

__all__ = ["MOST_NUMBERS", "check_size", "numbers"]

MOST_NUMBERS = 5 * 10**7
"""Of a policy's tensors, or of a layer's output: a hundred times what any policy here has."""
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
    config: SeeingConfig | VisionPolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    most: int = MOST_NUMBERS,
    geometry: Geometry | None = None,
) -> None:
    """ValueError for a policy whose tensors hold more than `most` numbers, or which computes with
    more than `MOST_NUMBERS` at once, and for spaces that it does not fit; of those that an implicit
    Vision-Performer does not fit, building it tells."""
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
    needed = numbers(config, *spaces, geometry)
    if needed > most:
        raise ValueError(
            f"its settings allocate {needed} numbers, where there can be at most {most}"
        )
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
    if config.feature_map in HYBRIDS and m * n > _MOST_HYBRID_FEATURES:
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
    if config.feature_map == "clustered_hybrid" and m * k * k > _MOST_HYBRID_FEATURES:
        raise ValueError(
            f"num_features times num_clusters squared must be at most {_MOST_HYBRID_FEATURES} with "
            f"the feature map clustered_hybrid, got {m} times {k} squared"
        )


def _tokens(config: VisionPolicyConfig, observation_space: gymnasium.Space[Any]) -> int:
    """How many an image becomes; 0 of another observation."""
    image = _shape(observation_space, "rgb")
    if len(image) != 3:
        return 0
    height, width = (side // config.image_scale for side in image[:2])
    return (height // config.patch[0]) * (width // config.patch[1])


def _shape(space: gymnasium.Space[Any], key: str) -> tuple[int, ...]:
    """Of a part of a Dict space; () where there is none."""
    parts = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {}
    return getattr(parts.get(key), "shape", None) or ()


def numbers(
    config: SeeingConfig | VisionPolicyConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    geometry: Geometry | None = None,
) -> int:
    """How many numbers a policy's `state_dict` holds: all of those that grow with its settings, so
    a little less than there are. 0 for spaces that an implicit Vision-Performer does not fit."""
    if isinstance(config, SeeingConfig):
        return _seeing(config, Sight(config, observation_space, action_space, geometry))
    vector = _shape(observation_space, "pose")
    tokens, actions = _tokens(config, observation_space), action_space.shape or ()
    if not tokens or len(vector) != 1 or len(actions) != 1:
        return 0
    return _vision(config, tokens, vector[0], actions[0])


def _seeing(config: SeeingConfig, sight: Sight) -> int:
    total = 2 * sight.measured
    if config.standardise:
        total += 2 * sight.pixels
    if isinstance(config, PooledPolicyConfig) and sight.images:
        vector = sight.observations.vector_size
        total += _layers(sight.size + PLACE, config.embed_dim) + config.depth * _block(config)
        total += _layers(vector, config.embed_dim) + config.embed_dim * config.patch_readout
    if isinstance(config, PlaceMemoryConfig):
        total += 0 if config.feature_map == "harmonic" else _map(config, 2)
        if config.keys == "learned":
            total += _layers(KEY_INPUTS, *KEY_HIDDEN, KEY_OUTPUTS)
        if config.write_tokens is not None and config.write_choice == "learned":
            scoring = PolicyConfig()
            total += 2 * CHOICE_INPUTS * scoring.qk_dim + _map(scoring, scoring.qk_dim)
    if isinstance(config, PolicyConfig):
        if config.selection == "learned" and sight.images:
            total += 2 * (sight.size + PLACE) * config.qk_dim + _map(config, config.qk_dim)
        elif config.selection == "random":
            total += sight.tokens
    by_template = sight.votes is not None or config.controller == "vote"
    return total if by_template else total + _controller(config, sight)


def _controller(config: SeeingConfig, sight: Sight) -> int:
    if config.acts_by not in GATES:
        return _layers(sight.inputs, *config.hidden, sight.head.size)
    before, width = (sight.inputs, *config.hidden[:-1]), config.hidden[-1]
    gates = GATES[config.acts_by] * (before[-1] + width + 2) * width
    return _layers(*before) + gates + _layers(width, sight.head.size)


def _vision(config: VisionPolicyConfig, tokens: int, pose: int, actions: int) -> int:
    dim = config.embed_dim
    coded = pose * waves_size(config.pose_octaves)
    seen = tokens * config.patch_readout or dim
    return (
        3 * math.prod(config.patch) * dim + tokens * dim
        + config.depth * _block(config)
        + _layers(coded, dim, dim) + dim * config.patch_readout
        + _layers(seen + dim + coded, config.context_dim)
        + _head(config, actions)
    )  # fmt: skip


def _block(config: VisionPolicyConfig | PooledPolicyConfig) -> int:
    dim = config.embed_dim
    block = _layers(dim, max(1, round(config.mlp_ratio * dim)), dim)
    return block + 4 * dim * dim + _map(config, dim) if config.attend else block


def _head(config: VisionPolicyConfig, actions: int) -> int:
    widths = config.hidden
    if config.head == "explicit":
        return _layers(config.context_dim, *widths, actions)
    if config.head == "joint":
        return _layers(config.context_dim + actions, *widths, 1)
    return actions * _layers(config.context_dim + actions, *widths, 1)


def _layers(*widths: int) -> int:
    """Weights and biases between layers of these widths."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def _map(config: SeeingConfig | VisionPolicyConfig, dim: int) -> int:
    """Random vectors of a feature map, in all heads together."""
    if config.feature_map in (EXACT, "elu"):
        return 0
    hybrid = config.feature_map in HYBRIDS
    return (config.num_features + hybrid * config.num_lambda_features) * dim
