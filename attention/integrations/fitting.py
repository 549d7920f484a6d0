"""Fit the maps of a model's layers to the queries and keys that reach them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from attention.exact import ExactSoftmax
from attention.features.base import FeatureMap
from attention.module import RandomFeatureAttention

_active = False


@contextmanager
def fitting(model: nn.Module) -> Iterator[None]:
    """Context in which a call of the model fits its maps."""
    global _active
    ours = [part for part in model.modules() if isinstance(part, RandomFeatureAttention)]
    hooks = [part.register_forward_pre_hook(_fit_module, with_kwargs=True) for part in ours]
    _active = True
    try:
        yield
    finally:
        _active = False
        for hook in hooks:
            hook.remove()


def fit(features: FeatureMap | ExactSoftmax, x: Tensor, y: Tensor, visible: Tensor | None) -> None:
    """Within `fitting`: fit the map to queries and keys (batch, ..., heads, L, d); visible (batch,
    ..., S) is False for padding."""
    if not _active:
        return
    tokens = []
    for u in (x, y):
        some = u.movedim(-3, 0).flatten(1, -2)
        if visible is not None:
            mask = visible.expand(u.shape[:-1]).select(-2, 0)
            some = some[:, mask.flatten()]
        tokens.append(some)
    features.fit(*tokens)


def _fit_module(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = dict(zip(("query", "key"), args, strict=False)) | kwargs
    assert isinstance(module, RandomFeatureAttention)
    module.fit(given["query"], given["key"])
