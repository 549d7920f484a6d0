"""The feature map of a policy's settings, with parameters for the expected queries and keys."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import attention
from attention import ExactSoftmax, FeatureMap
from attention.hybrid import ClusteredHybrid
from attention.registry import options_of
from policies.common.plugins import custom_map
from policies.common.settings import EXACT, SeeingConfig
from policies.vision_performer.config import VisionPolicyConfig

_SAMPLES = 256


MapSettings = SeeingConfig | VisionPolicyConfig
"""Settings of policies with attention."""


def map_options(config: MapSettings) -> dict[str, Any]:
    """Options of `attention.feature_map` beside name, d, m and seed.

    A hybrid's first base shares its random vectors with trig where it is hyperbolic. Other bases
    have separate vectors, simplex-coupled if trig's are orthogonal, which is best for both
    (`experiments.hybrid_random_features.hybrid_bases`).
    """
    options: dict[str, Any] = {"projection": config.projection}
    declared = options_of(config.feature_map)
    if "num_lambda_features" in declared:
        options["num_lambda_features"] = config.num_lambda_features
    if "num_query_clusters" in declared:
        options["num_query_clusters"] = options["num_key_clusters"] = config.num_clusters
    if config.hybrid_base != "hyperbolic":
        own = "simplex" if config.projection == "orthogonal" else config.projection
        options["projection"] = (own, config.projection)
        options["lambda_projection"] = config.projection
        options["base"] = (config.hybrid_base, "trig")
        options["shared_projections"] = False
    return options


def attention_kernel(
    config: MapSettings, dim: int
) -> attention.FeatureMap | attention.ExactSoftmax:
    """The feature map, or exact softmax, for attention among unit queries and keys of `dim`
    dimensions."""
    if config.feature_map == EXACT:
        return attention.ExactSoftmax(dim)
    features = attention.feature_map(
        custom_map(config.feature_map),
        dim,
        config.num_features,
        seed=config.feature_seed,
        **map_options(config),
    )
    fit_to_directions(features, 1.0)
    return features


def fit_to_directions(features: FeatureMap, length: float) -> None:
    """Set a map's parameters (the A of OPRF, a Gaussian coefficient) for queries and keys of a
    given length in random directions, as only their length is known before training.

    Clustered maps are not changed, because random directions have no clusters, nor are maps on the
    meta device, which have no numbers. Training later fits all maps to the policy's queries and
    keys (`fit_attention` of each policy).

    Args:
        features: the map, changed in place.
        length: length of all queries and keys.
    """
    on_meta = any(tensor.is_meta for tensor in features.buffers())
    if isinstance(features, ClusteredHybrid) or on_meta:
        return
    generator = torch.Generator().manual_seed(0)
    shape = (2, *([features.heads] if features.heads else []), _SAMPLES, features.dim)
    both: Tensor = length * normalize(torch.randn(shape, generator=generator), dim=-1)
    features.fit(both[0], both[1])


def map_prefixes(policy: nn.Module) -> tuple[str, ...]:
    """Prefixes of the names of a policy's feature maps in its `state_dict`, including exact
    softmax, which stores nothing.
    """
    return tuple(
        f"{name}."
        for name, part in policy.named_modules()
        if isinstance(part, FeatureMap | ExactSoftmax)
    )


def map_state(policy: nn.Module) -> dict[str, Tensor]:
    """Copies of the stored tensors of a policy's feature maps, by their names in its `state_dict`.

    `policy.load_state_dict(..., strict=False)` restores them."""
    state, maps = policy.state_dict(), map_prefixes(policy)
    return {name: state[name].clone() for name in state if name.startswith(maps)}


def unfitted(policy: nn.Module) -> bool:
    """Whether the policy has a map that must be fitted to data before use."""
    return any(
        isinstance(part, ClusteredHybrid) and not part.query_centers.any()
        for part in policy.modules()
    )
