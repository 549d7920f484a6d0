"""Tuples in place of YAML's lists, where an environment or a wrapper takes tuples."""

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any


def with_tuples(
    make: Any, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Settings with a tuple in place of a list where the argument of `make` takes tuples, by its
    default value or its annotation; also in nested settings. `defaults` replace its own."""
    found = {}
    for key, value in settings.items():
        default, hint = _declared(make, key)
        found[key] = _like(value, (defaults or {}).get(key, default), hint)
    return found


def all_tuples(value: Any) -> Any:
    """A copy of nested settings with a tuple in place of every list."""
    if isinstance(value, dict):
        return {key: all_tuples(one) for key, one in value.items()}
    return tuple(map(all_tuples, value)) if isinstance(value, list) else value


def _declared(make: Any, key: str) -> tuple[Any, Any]:
    """Default and annotation of an argument, in the class itself or in a base of it."""
    for one in inspect.getmro(make) if isinstance(make, type) else (make,):
        function = one.__dict__.get("__init__") if isinstance(one, type) else one
        if function is None:
            continue
        try:
            found = inspect.signature(function).parameters.get(key)
        except (TypeError, ValueError):
            continue
        if found is not None:
            try:
                hint = typing.get_type_hints(function).get(key)
            except Exception:  # an annotation that cannot be evaluated here
                hint = None
            return found.default, hint
    return None, None


def _like(value: Any, default: Any, hint: Any) -> Any:
    """The value with tuples where the default value has them, or else the annotation."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = {
        typing.get_origin(one) or one: one for one in (typing.get_args(hint) if union else (hint,))
    }
    if isinstance(value, dict):
        known = default if isinstance(default, Mapping) else {}
        inner = (typing.get_args(options.get(dict)) or (None, None))[1]
        return {key: _like(one, known.get(key), inner) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    has_default = isinstance(default, tuple | list)
    is_tuple = (
        isinstance(default, tuple) if has_default else tuple in options and list not in options
    )
    kind = tuple if is_tuple else list
    hints = [one for one in typing.get_args(options.get(kind)) if one is not ...]
    found = [
        _like(one, _nth(default, i) if has_default else None, _nth(hints, i))
        for i, one in enumerate(value)
    ]
    return kind(found)


def _nth(values: Sequence[Any], i: int) -> Any:
    """The value at a place, or the last."""
    return values[min(i, len(values) - 1)] if values else None
