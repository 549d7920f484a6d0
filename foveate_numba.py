"""Numerical functions compiled by Numba, which this module imports.

Its name is one that no folder of a user hides.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function, **options: object) -> Function:
    """Compile a function of arrays, tuples and numbers at its first call, for the types that come.

    Compiled code is cached on disk, and compiled again if the file of the function has changed, or
    that of a compiled function whose name it uses. Without a usable cache, each process compiles.
    Division by zero is inf or NaN, as NumPy's. The environment variable NUMBA_DISABLE_JIT=1
    disables compilation.

    Args:
        function: the source.
        options: of `numba.njit`.
    """
    njit: Any = partial(numba.njit, error_model="numpy", **options)
    try:
        made = njit(cache=True)(function)
    except RuntimeError:  # no folder that can be written
        made = njit()(function)
    if hasattr(made, "_cache"):
        made._cache = _Kept(made._cache, function)
    return cast(Function, made)


class _Kept:
    """Numba's cache of a function. Its failures are ignored, such as a full disk or a truncated
    pickle."""

    def __init__(self, cache: Any, function: Callable[..., object]) -> None:
        self._cache = cache
        names = (function.__globals__.get(name) for name in function.__code__.co_names)
        caches = (getattr(used, "_cache", None) for used in names)
        stamps = [used.stamp for used in caches if isinstance(used, _Kept)]
        with suppress(Exception):
            index = cache._cache_file
            index._source_stamp = (index._source_stamp, *stamps)

    @property
    def stamp(self) -> Any:
        """What Numba compares: time and size of the source, and those of the functions it uses."""
        return getattr(getattr(self._cache, "_cache_file", None), "_source_stamp", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *signature: Any) -> Any:
        with suppress(Exception):
            return self._cache.load_overload(*signature)
        with suppress(Exception):
            self._cache.flush()
        return None

    def save_overload(self, *made: Any) -> None:
        with suppress(Exception):
            self._cache.save_overload(*made)
