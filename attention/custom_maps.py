"""Custom feature maps: an object, or a class or function that creates one."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from attention.exact import ExactSoftmax
from attention.features import FeatureMap
from attention.options import is_integer, keywords


def label(given: Any) -> str:
    """Return the name of a map in error messages: its name, or that of its class or function."""
    return given if isinstance(given, str) else getattr(given, "__name__", repr(given))


def check_maker(given: Any) -> Callable[..., FeatureMap]:
    """Return a subclass of FeatureMap or a function unchanged. Raises ValueError for other
    values."""
    if isinstance(given, type):
        fits = issubclass(given, FeatureMap)
    else:
        fits = callable(given) and not isinstance(given, nn.Module)
    if not fits:
        raise ValueError(
            "feature_map must be a name, a FeatureMap, or a subclass of it or a function that "
            f"makes one, got {given!r}"
        )
    return given


def as_given(
    features: FeatureMap | ExactSoftmax,
    dim: int,
    heads: int | None,
    options: dict[str, Any],
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> FeatureMap | ExactSoftmax:
    """Return a custom map object, moved in place to the device and dtype if they are given.

    Raises ValueError for another dim or number of heads, an incomplete map, or options.
    """
    if options:
        raise ValueError(
            f"feature_map given as an object takes no options, got {', '.join(options)}"
        )
    _check(features, type(features).__name__, dim, heads)
    if device is not None or dtype is not None:
        features.to(device=device, dtype=dtype)
    return features


def built(
    make: Callable[..., FeatureMap],
    name: str,
    dim: int,
    num_features: int,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> FeatureMap:
    """Call make(dim, num_features, ...) with the settings that it accepts and the options.

    Settings are `kernel`, `projection`, `seed`, `heads`, `dtype` and `device`; a map that does not
    accept the last two is cast and moved. Raises ValueError for another kernel, dim or number of
    heads, or a result that is not a FeatureMap.
    """
    taken = keywords(make)
    passed = {k: v for k, v in settings.items() if taken is None or k in taken}
    try:
        inspect.signature(make).bind(dim, num_features, **passed, **options)
    except TypeError as error:
        raise ValueError(f"feature map {name} must take (dim, num_features): {error}") from None
    made = make(dim, num_features, **passed, **options)
    if not isinstance(made, FeatureMap):
        raise ValueError(f"feature map {name} must make a FeatureMap, got {made!r}")
    _check(made, name, dim, settings.get("heads"))
    kernel = settings.get("kernel", made.kernel)
    if not made.own_kernel and made.kernel != kernel:
        raise ValueError(f"feature map {name} has the kernel {made.kernel}, got kernel={kernel!r}")
    device, dtype = (None if k in passed else settings.get(k) for k in ("device", "dtype"))
    return made if device is None and dtype is None else made.to(device=device, dtype=dtype)


def _check(features: FeatureMap | ExactSoftmax, name: str, dim: int, heads: int | None) -> None:
    """Raise ValueError for a map that does not fit or is incomplete."""
    found = getattr(features, "dim", None)
    if found != dim:
        raise ValueError(f"feature map {name} must have dim {dim}, that of a head, got {found}")
    if isinstance(features, ExactSoftmax):
        return
    if features.heads is not None and features.heads != heads:
        raise ValueError(
            f"feature map {name} must have heads {heads}, or None for one set of vectors for all, "
            f"got {features.heads}"
        )
    cls = type(features)
    missing = [
        method
        for method in ("output_dim", "queries")
        if getattr(cls, method) is getattr(FeatureMap, method)
    ]
    if missing:
        raise ValueError(f"feature map {name} must define {' and '.join(missing)}")
    if not is_integer(features.output_dim) or features.output_dim < 1:
        raise ValueError(
            f"feature map {name} must have an output_dim of at least 1, the length of its "
            f"features, got {features.output_dim!r}"
        )
