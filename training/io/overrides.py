"""`--set key=value` as nested data: one value for each setting, however it is spelled."""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from training.command.errors import UserError, shown
from training.io.yaml_text import MAX_DEPTH, parse

Overrides = Sequence[str] | Mapping[str, Any]
"""Changes of settings: `key=value` words as in `--set`, or values by key, dotted or nested."""


def source(path: Any, overrides: Overrides) -> str:
    """The source of a setting, for error messages."""
    if isinstance(overrides, Mapping):
        overrides = [assignment(key, value) for key, value in overrides.items()]
    words = " ".join(word if len(word) <= 100 else f"{word[:100]}..." for word in overrides)
    return f"{path} with --set {words}" if overrides else str(path)


def read_overrides(overrides: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """`["a.b=1e-3", ...]`, each value read as YAML, or `{"a.b": 1e-3}` as a nested dict.

    Raises UserError if one cannot be read or two give a setting different values.
    """
    nested: dict[str, Any] = {}
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            merge_distinct(nested, nest(key.split("."), value), "--set")
        return nested
    for override in overrides:
        key, equals, value = override.partition("=")
        names = key.strip().split(".")
        if not equals or not all(names):
            raise UserError(f"--set takes key=value (dotted where nested), got {override!r}")
        if len(names) > MAX_DEPTH:
            raise UserError(
                f"--set {key[:40]}... has {len(names)} names; a configuration holds plain values "
                f"only, at most {MAX_DEPTH} deep"
            )
        merge_distinct(nested, nest(names, parse(value, f"--set {key}")), "--set")
    return nested


def assignment(key: str, value: Any) -> str:
    """`key=value` that `read_overrides` reads back; text is quoted only if YAML changes it."""
    with suppress(UserError):
        if isinstance(value, str) and parse(value, key) == value:
            return f"{key}={value}"
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def nest(names: list[str], value: Any) -> dict[str, Any]:
    """`{"a": {"b": value}}` of the names a and b."""
    inner = {names[-1]: value}
    for name in reversed(names[:-1]):
        inner = {name: inner}
    return inner


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Put a copy of `new` into `into`, in place, mapping by mapping."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def merge_distinct(
    into: dict[str, Any], new: dict[str, Any], where: str, into_key: str = "", new_key: str = ""
) -> None:
    """Like `merge`, but raises UserError if `into` has another value for a setting of `new`.

    `into_key` and `new_key` stand before the keys of either in the error ("env.").
    """
    for key, value in new.items():
        old = into.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merge_distinct(old, value, where, f"{into_key}{key}.", f"{new_key}{key}.")
        elif key not in into:
            into[key] = copy.deepcopy(value)
        elif isinstance(value, dict) or isinstance(old, dict):
            name, plain = (new_key, value) if isinstance(old, dict) else (into_key, old)
            raise _not_nested(where, name + key, plain)
        elif not _equal(old, value):
            raise _differ(where, into_key + key, old, new_key + key, value)


def _equal(one: Any, other: Any) -> bool:
    """Whether two settings are equal; true differs from 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _differ(where: str, key: str, value: Any, other: str, another: Any) -> UserError:
    return UserError(
        f"{where}: {key} = {shown(value)} and {other} = {shown(another)} are the same setting; "
        "give one of them, or both the same value"
    )


def _not_nested(where: str, key: str, value: Any) -> UserError:
    return UserError(f"{where}: {key} = {shown(value)}, where `key: value` pairs are needed")


def fill_shorthands(data: dict[str, Any], shorthands: dict[str, str], where: str) -> None:
    """Make each top-level shorthand and the nested key that it stands for equal, in place.

    `shorthands` maps "episode_s" to "env.episode_s", say; one that is null is not given. UserError
    when both are given and differ, or when `env` is not a mapping."""
    for short, full in shorthands.items():
        *outer, last = names = full.split(".")
        inner: Any = data
        for depth, name in enumerate(outer, 1):
            inner = {} if inner.get(name) is None else inner[name]
            if not isinstance(inner, dict):
                raise _not_nested(where, ".".join(names[:depth]), inner)
        if data.get(short) is None:
            if last in inner:
                data[short] = copy.deepcopy(inner[last])
        elif last in inner and not _equal(data[short], inner[last]):
            raise _differ(where, short, data[short], full, inner[last])
        else:
            merge(data, nest(names, data[short]))
