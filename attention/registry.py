"""Feature maps by name."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from attention.conversion import Numbers
from attention.features import (
    ComplexExponentialFeatures,
    EluFeatures,
    FeatureMap,
    GeometricFeatures,
    GeometricPlusFeatures,
    GerfFeatures,
    HyperbolicFeatures,
    OprfFeatures,
    PoissonFeatures,
    PoissonPlusFeatures,
    PositiveFeatures,
    ReluFeatures,
    TrigFeatures,
    TrigPhaseFeatures,
)
from attention.hybrid import AngularHybrid, ClusteredHybrid, GaussianHybrid
from attention.options import check_count, check_dtype, check_options, check_seed
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
    "hyperbolic": HyperbolicFeatures,
    "oprf": OprfFeatures,
    "poisson": PoissonFeatures,
    "poisson_plus": PoissonPlusFeatures,
    "positive": PositiveFeatures,
    "relu": ReluFeatures,
    "trig": TrigFeatures,
    "trig_phase": TrigPhaseFeatures,
}


def available() -> tuple[str, ...]:
    """Names that `feature_map` takes, sorted."""
    return tuple(sorted(_MAPS))


def check_map_options(
    name: str, options: dict[str, Any], fixed: Iterable[str]
) -> Callable[..., FeatureMap]:
    """The class of the map `name`.

    Raises ValueError for an unknown name and for an option that the map lacks; the message lists
    those that it has but for `fixed`.
    """
    if not isinstance(name, str) or name not in _MAPS:
        raise ValueError(f"feature map must be one of {', '.join(available())}, got {name!r}")
    check_options(name, _MAPS[name], options, fixed)
    return _MAPS[name]


def feature_map(
    name: str,
    dim: int,
    num_features: int,
    *,
    kernel: str = "softmax",
    projection: str | Numbers | tuple[str, str] = "orthogonal",
    seed: int = 0,
    **options: Any,
) -> FeatureMap:
    """Build a feature map: an nn.Module whose random vectors are buffers.

    `(fm.queries(x) * fm.keys(y)).sum(-1)` is an unbiased estimate of kernel(x, y), with no hidden
    scaling. The same arguments give the same map on every machine.

    Args:
        name: one of `available()`.
        dim: d, dimension of queries and keys.
        num_features: m, the number of random vectors; the features' length is `fm.output_dim`.
        kernel: "softmax" for exp(x.y), "gaussian" for exp(-|x-y|^2/2).
        projection: a name of `attention.available_projections()`; or the vectors themselves, a
            tensor, array or nested list (m, d), which all `heads` share, or (heads, m, d), of
            integers for poisson and geometric maps; or, for a hybrid whose bases do not share their
            vectors, a pair of names.
        seed: of the map's own generator, which is on the CPU; nothing global is touched.
        options: `dtype` and `device` of the buffers, by default an explicit projection's, else
            PyTorch's; `heads`, for random vectors of each head's own; and the map's own, for
            example `num_lambda_features` of a hybrid; see its class.

    Raises:
        ValueError: an unknown name or option, or a value that the map does not take.
    """
    fixed = ("dim", "num_features", "kernel", "projection", "seed")
    cls = check_map_options(name, options, fixed)
    seed = check_seed(seed)
    check_dtype(options.get("dtype"))
    if "num_lambda_features" in options:
        check_count("num_lambda_features", options["num_lambda_features"])
    projection = _checked_projection(projection)
    device = options.pop("device", None)
    explicit = [projection, options.get("lambda_projection")]
    if device is None and not any(isinstance(value, Tensor) for value in explicit):
        device = torch.get_default_device()
    options["projection"] = projection
    # Nothing can be computed on the meta device: a map for it is made on the CPU and moved, unless
    # a tensor of its own has no entries to make it from.
    empty = any(isinstance(value, Tensor) and value.is_meta for value in options.values())
    moved = device is not None and torch.device(device).type == "meta" and not empty
    with torch.device("cpu"):
        place = "cpu" if moved else device
        made = cls(dim, num_features, kernel=kernel, seed=seed, device=place, **options)
    return made.to("meta") if moved else made


def _checked_projection(
    projection: str | Numbers | tuple[str, str],
) -> str | Tensor | tuple[str, str]:
    """Names as they are, vectors as a tensor; raises ValueError for anything else."""
    if isinstance(projection, str | Tensor):
        return projection
    if isinstance(projection, tuple | list) and all(isinstance(name, str) for name in projection):
        names: Any = tuple(projection)
        return names
    if projection is None:
        known = ", ".join(available_projections())
        raise ValueError(f"projection must be a tensor or one of {known}, got None")
    return as_tensor("projection", projection)
