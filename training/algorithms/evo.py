"""EvoTorch, loaded without Ray and without what it warns of.

EvoTorch imports Ray for evaluations of its own on a cluster; here episodes run in worker processes,
or on Ray by `training.collect.ray_pool`. So that one machine needs no Ray, EvoTorch finds an empty
module of that name while it loads, unless Ray or EvoTorch is loaded already. Its own evaluation by
Ray's actors (`num_actors`) is then not to be had in this process.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from foveate_extras import needs

__all__ = ["evotorch_algorithms", "quiet"]


def evotorch_algorithms(who: str) -> Any:
    """The module `evotorch.algorithms`; MissingExtraError, where it is missing, says `who` needs
    it."""
    with quiet(), _without_ray(), needs(who, "es"):
        import evotorch.algorithms
        import evotorch.algorithms.functional
    return evotorch.algorithms


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out warnings: EvoTorch uses torch.jit.script, which is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Absent(ModuleType):
    """What EvoTorch names of Ray while it loads: decorators, base classes and types."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent


def _absent(*_: Any, **__: Any) -> Any:
    """Stands for a class or a decorator of Ray's."""
    return _absent


@contextmanager
def _without_ray() -> Iterator[None]:
    if sys.modules.get("ray") is not None or sys.modules.get("evotorch") is not None:
        yield
        return
    ray = _Absent("ray")
    ray.__path__ = []
    absent = {"ray": ray, "ray.util": _Absent("ray.util")}
    before = {name: sys.modules[name] for name in absent if name in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)
        sys.modules.update(before)
