"""Feature maps by name: built-in maps, plugins of installed packages, and custom maps."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from attention import plugins
from attention.conversion import Numbers
from attention.custom_maps import as_given, built, check_maker, label
from attention.features import (
    ComplexExponentialFeatures,
    EluFeatures,
    FeatureMap,
    GeometricFeatures,
    GeometricPlusFeatures,
    GerfFeatures,
    HarmonicFeatures,
    HyperbolicFeatures,
    OprfFeatures,
    PoissonFeatures,
    PoissonPlusFeatures,
    PositiveFeatures,
    QuadraticFeatures,
    ReluFeatures,
    TrigFeatures,
    TrigPhaseFeatures,
)
from attention.hybrid import AngularHybrid, ClusteredHybrid, GaussianHybrid
from attention.options import check_count, check_dtype, check_options, check_seed, keywords
from attention.projections import available_projections
from attention.projections.registry import as_tensor

_MAPS: dict[str, Callable[..., FeatureMap]] = {
    "angular_hybrid": AngularHybrid,
    "clustered_hybrid": ClusteredHybrid,
    "complex_exponential": ComplexExponentialFeatures,
    "elu": EluFeatures,
    "gaussian_hybrid": GaussianHybrid,
    "geometric": GeometricFeatures,
    "geometric_plus": GeometricPlusFeatures,
    "gerf": GerfFeatures,
    "harmonic": HarmonicFeatures,
    "hyperbolic": HyperbolicFeatures,
    "oprf": OprfFeatures,
    "poisson": PoissonFeatures,
    "poisson_plus": PoissonPlusFeatures,
    "positive": PositiveFeatures,
    "quadratic": QuadraticFeatures,
    "relu": ReluFeatures,
    "trig": TrigFeatures,
    "trig_phase": TrigPhaseFeatures,
}


GROUP = "foveate.feature_maps"
"""Group of the entry points of feature maps in installed packages."""

Maker = Callable[..., FeatureMap]
"""A subclass of FeatureMap, or a function that creates one."""


def available(*, general: bool = False) -> tuple[str, ...]:
    """Return the sorted names that `feature_map` accepts: built-in maps and plugins of installed
    packages.

    Args:
        general: omit built-in maps that do not support arbitrary queries and keys
            (`FeatureMap.general`).
    """
    ours = {name for name, make in _MAPS.items() if not general or getattr(make, "general", True)}
    return tuple(sorted({*ours, *plugins.names(GROUP)}))


def options_of(name: str) -> frozenset[str]:
    """Return the options that the constructor of a built-in map declares; empty for other names."""
    return frozenset(keywords(_MAPS[name]) or ()) if name in _MAPS else frozenset()


def projections_of(name: str) -> tuple[str, ...] | None:
    """Return the couplings that a built-in map supports; None for all couplings or for other
    maps."""
    return getattr(_MAPS.get(name), "projections", None)


def find_map(name: str, *, trusted: bool = True) -> Maker:
    """Return the class or function that creates the map `name`; `feature_map` accepts it instead of
    the name.

    Args:
        name: name of a built-in map, which has precedence; an entry point of an installed package
            in the group `foveate.feature_maps`; or "module:Class", which is imported.
        trusted: whether the user gave the name, in a call, on a command line or in their
            configuration. Pass False for a name from a file, such as a checkpoint: then
            "module:Class" imports nothing and must be a subclass of FeatureMap in a module that is
            already imported.

    Raises ValueError for an unknown name or one that may not be imported.
    """
    if isinstance(name, str):
        if name in _MAPS:
            return _MAPS[name]
        return plugins.find(GROUP, "feature map", name, FeatureMap, tuple(_MAPS), trusted=trusted)
    raise ValueError(f"feature map must be one of {', '.join(available())}, got {name!r}")


def check_map_options(given: str | Maker, options: dict[str, Any], fixed: Iterable[str]) -> Maker:
    """Return the class or function that creates the map.

    Raises ValueError for an unknown name or option; the message lists the options of the map except
    `fixed`.
    """
    make = find_map(given) if isinstance(given, str) else check_maker(given)
    check_options(label(given), make, options, fixed)
    return make


def feature_map(
    name: str | Maker | FeatureMap,
    dim: int,
    num_features: int,
    *,
    kernel: str = "softmax",
    projection: str | Numbers | tuple[str, str] = "orthogonal",
    seed: int = 0,
    **options: Any,
) -> FeatureMap:
    """Build a feature map: an nn.Module whose random vectors are buffers.

    `(fm.queries(x) * fm.keys(y)).sum(-1)` is an unbiased estimate of kernel(x, y), without hidden
    scaling. The same arguments give the same map on every machine.

    Args:
        name: one of `available()`; "module:Class", which is imported; a subclass of FeatureMap or a
            function that creates one, called with dim, num_features and those of the arguments
            below that it accepts; or a FeatureMap, which is returned if its dim fits.
        dim: d, dimension of queries and keys.
        num_features: m, the number of random vectors; the features' length is `fm.output_dim`.
        kernel: "softmax" for exp(x.y), "gaussian" for exp(-|x-y|^2/2).
        projection: one of `attention.available_projections()`; explicit vectors, a tensor, array or
            nested list (m, d), shared by all heads, or (heads, m, d), of integers for poisson and
            geometric maps; or a pair of names for a hybrid whose bases do not share their vectors.
        seed: seed of the map's generator on the CPU; global generators are not used.
        options: `dtype` and `device` of the buffers, by default those of an explicit projection,
            else PyTorch's; `heads`, for separate random vectors per head; and the options of the
            map's class, for example `num_lambda_features` of a hybrid.

    Raises:
        ValueError: for an unknown name or option, an invalid value, or a custom map that does not
            fit.
    """
    if isinstance(name, FeatureMap):
        places = {key: options.pop(key, None) for key in ("device", "dtype")}
        as_given(name, dim, options.pop("heads", name.heads), options, **places)
        return name
    settled = ("heads", "dtype", "device")
    fixed = ("dim", "num_features", "kernel", "projection", "seed")
    own = {k: v for k, v in options.items() if k not in settled}
    make = check_map_options(name, own, fixed)
    settings: dict[str, Any] = {k: v for k, v in options.items() if k in settled}
    check_dtype(settings.get("dtype"))
    if "num_lambda_features" in options:
        check_count("num_lambda_features", options["num_lambda_features"])
    settings.update(kernel=kernel, projection=_checked_projection(projection))
    settings["seed"] = check_seed(seed)
    device = options.get("device")
    explicit = [settings["projection"], options.get("lambda_projection")]
    if device is None and not any(isinstance(value, Tensor) for value in explicit):
        device = torch.get_default_device()
    # Nothing can be computed on the meta device: a map for it is created on the CPU and moved,
    # unless a given tensor has no values.
    values = [settings["projection"], *own.values()]
    empty = any(isinstance(value, Tensor) and value.is_meta for value in values)
    moved = device is not None and torch.device(device).type == "meta" and not empty
    settings["device"] = "cpu" if moved else device
    with torch.device("cpu"):
        made = built(make, label(name), dim, num_features, settings, own)
    return made.to("meta") if moved else made


def _checked_projection(
    projection: str | Numbers | tuple[str, str],
) -> str | Tensor | tuple[str, str]:
    """Return a name unchanged and vectors as a tensor. Raises ValueError for other values."""
    if isinstance(projection, str | Tensor):
        return projection
    if isinstance(projection, tuple | list) and all(isinstance(name, str) for name in projection):
        names: Any = tuple(projection)
        return names
    if projection is None:
        known = ", ".join(available_projections())
        raise ValueError(f"projection must be a tensor or one of {known}, got None")
    return as_tensor("projection", projection)
