"""Feature maps by name."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

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
from attention.options import check_options

_MAPS: dict[str, Callable[..., FeatureMap]] = {
    "angular_hybrid": AngularHybrid,
    "clustered_hybrid": ClusteredHybrid,
    "gaussian_hybrid": GaussianHybrid,
    "complex_exponential": ComplexExponentialFeatures,
    "elu": EluFeatures,
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


def feature_map(
    name: str,
    dim: int,
    num_features: int,
    *,
    kernel: str = "softmax",
    projection: str | Tensor = "orthogonal",
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
        projection: a name of `attention.available_projections()`, or an explicit (m, d) tensor.
        seed: of the map's own generator; nothing global is touched.
        options: `dtype` and `device` of the buffers, and the map's own, for example
            `num_lambda_features` of a hybrid; see its class.

    Raises:
        ValueError: an unknown name or option, or a value that the map does not take.
    """
    if name not in _MAPS:
        raise ValueError(f"feature map must be one of {', '.join(available())}, got {name!r}")
    cls = _MAPS[name]
    fixed = ("dim", "num_features", "kernel", "projection", "seed")
    check_options(name, cls, options, fixed)
    return cls(dim, num_features, kernel=kernel, projection=projection, seed=seed, **options)
