"""Plugins of other packages by name: an entry point, or "module:Class".

An entry point belongs to a package that was installed for this purpose, so any file may name it.
"module:Class" can name everything that Python can import: it is only trusted if the user gave it,
on a command line, in their configuration or in a call. In a file from elsewhere it imports nothing.
Plugins are imported on first use.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from torch import nn


def names(group: str) -> tuple[str, ...]:
    """Return the sorted entry points of a group, without importing them."""
    return tuple(sorted({point.name for point in _points(group)}))


def find(
    group: str, kind: str, name: str, base: type, known: tuple[str, ...], *, trusted: bool = True
) -> Callable[..., Any]:
    """Return the class or function that creates the plugin `name`.

    Args:
        group: group of entry points, such as "foveate.feature_maps".
        kind: description of the plugin in error messages.
        name: name of an entry point, or "module:Class"; the attribute may be dotted.
        base: base class of a plugin: a class must be a subclass of it. The result of a function is
            not checked here.
        known: built-in names, for the error message about an unknown name.
        trusted: whether the user gave the name. Otherwise "module:Class" must be a class of a
            module that this program has imported already.

    Raises ValueError for an unknown or ambiguous name, a module that cannot or may not be imported,
    or an attribute that is neither a class nor a function.
    """
    if ":" in name:
        return _imported(kind, name, base) if trusted else _already_imported(kind, name, base)
    points = [point for point in _points(group) if point.name == name]
    if not points:
        every = ", ".join(sorted({*known, *names(group)}))
        raise ValueError(
            f"{kind} must be one of {every}, got {name!r}; module:Class names a custom one"
        )
    targets = sorted({f"{point.module}:{point.attr}" for point in points})
    if len(targets) > 1:
        raise ValueError(
            f"{kind} {name!r} is an entry point of two installed packages, "
            f"{' and '.join(targets)}: give its full name, as module:Class"
        )
    return _imported(kind, targets[0], base)


def _points(group: str) -> list[Any]:
    from importlib import metadata  # imported late, since it takes longer than this whole package

    return list(metadata.entry_points(group=group))


def _split(kind: str, name: str) -> tuple[str, list[str]]:
    module, _, path = name.partition(":")
    attributes = path.split(".")
    if not all(part.isidentifier() for part in [*module.split("."), *attributes]):
        raise ValueError(f"{kind} must be named as module:Class, got {name!r}")
    return module, attributes


def _imported(kind: str, name: str, base: type) -> Callable[..., Any]:
    module, attributes = _split(kind, name)
    from importlib import import_module

    try:
        found: Any = import_module(module)
        for attribute in attributes:
            found = getattr(found, attribute)
    except Exception as error:  # the plugin's code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{kind} {name!r} cannot be imported: {reason}") from error
    return _checked(kind, name, found, base)


def _already_imported(kind: str, name: str, base: type) -> Callable[..., Any]:
    """Return a class of an imported module: a name from a file must not call anything."""
    module, attributes = _split(kind, name)
    loaded = sys.modules.get(module)
    if loaded is None:
        raise ValueError(
            f"{kind} {name!r} comes from a file and would import {module}, which is allowed only "
            "for a name that you give yourself"
        )
    found = vars(loaded).get(attributes[0]) if len(attributes) == 1 else None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(
            f"{kind} {name!r} comes from a file and must be a subclass of {base.__name__}"
        )
    return _checked(kind, name, found, base)


def _checked(kind: str, name: str, found: Any, base: type) -> Callable[..., Any]:
    if isinstance(found, type):
        fits = issubclass(found, base) and not inspect.isabstract(found)
    else:
        fits = callable(found) and not isinstance(found, nn.Module)
    if not fits:
        raise ValueError(
            f"{kind} {name!r} must be a subclass of {base.__name__} or a function that makes one, "
            f"got {found!r}"
        )
    return found
