"""Configuration: YAML files and `--set` overrides become frozen, validated dataclasses."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from training.errors import UserError
from training.files import refusal

__all__ = [
    "ArgumentParser",
    "UserError",
    "describe",
    "dump",
    "exit_status",
    "fill_shorthands",
    "load",
    "merge",
    "read_overrides",
    "read_yaml",
    "source",
    "to_yaml",
    "validate",
]

T = TypeVar("T")


_NAMED = {"DIR": "a directory", "FILE": "a file", "RUN": "a run directory"}
"""What an option means, by its metavar."""


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose errors are UserErrors, like every other mistake on a command line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message} (--help lists what is allowed)")

    def parse_known_args(self, *given: Any, **more: Any) -> Any:
        """As argparse's, but a file or directory with an empty name, as an unset variable of a
        shell gives it, is a UserError and not the default."""
        found, rest = super().parse_known_args(*given, **more)
        for action in self._actions:
            kind = _NAMED.get(action.metavar) if isinstance(action.metavar, str) else None
            if kind and getattr(found, action.dest, None) == "":
                raise UserError(f"{action.option_strings[-1]} must name {kind}, got ''")
        return found, rest


def exit_status(command: Callable[[], int]) -> int:
    """Run a command line: its status, or 2 after printing a UserError, or 130 when interrupted.

    141 = 128 + SIGPIPE, as of other programs, when what reads its output has closed it. A Control-C
    that arrives in a finalizer, where Python ignores exceptions, is sent again.
    """
    report, main = sys.unraisablehook, threading.main_thread().ident
    assert main is not None

    def report_or_repeat(ignored: Any) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        else:
            report(ignored)

    sys.unraisablehook = report_or_repeat
    try:
        try:
            return _status(command)
        finally:
            if sys.stdout is not None:  # as where it is closed from the beginning
                sys.stdout.flush()  # at exit it would be too late to see that it fails
    except BrokenPipeError:
        if not _drop_closed_streams():
            raise  # another pipe's
        return 141
    finally:
        sys.unraisablehook = report


def _status(command: Callable[[], int]) -> int:
    try:
        return command()
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except (OSError, MemoryError) as error:  # of any file, of any library
        print(f"error: {refusal(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _drop_closed_streams() -> bool:
    """Whether what reads our output closed it; the rest goes nowhere, so that exiting is silent."""
    closed = False
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):  # it has no descriptor, under a test say
            pipe, poll = stream.fileno(), select.poll()
            poll.register(pipe, 0)
            if any(event & select.POLLERR for _, event in poll.poll(0)):
                closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), pipe)
    return closed


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number (YAML 1.1 wants 1.0e-3) and a repeated key is an error."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError):  # of int(), date() and others
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{str(node.value)[:40]!r} is no {kind}", node.start_mark
            ) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", node.start_mark
            )
    return loader.construct_mapping(node, deep=True)


def _sequence(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node, deep=True)  # deep: one that holds itself is an error


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _sequence)


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{source} is not valid YAML: it is nested too deeply") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; UserError when it is missing, unreadable or something else."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UserError(f"cannot read the configuration {path}: {reason}") from None
    data = _parse(text, str(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold `key: value` lines, but holds a {type(data).__name__}")
    return data


def to_yaml(data: dict[str, Any], heading: str) -> str:
    """A resolved configuration as text that `read_yaml` reads back unchanged."""
    body = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, allow_unicode=True)
    return f"# {heading}\n{body}"


def read_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """`["a.b=1e-3", ...]` as a nested dict, each value read as YAML."""
    nested: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        names = key.strip().split(".")
        if not equals or not all(names):
            raise UserError(f"--set takes key=value (dotted where nested), got {override!r}")
        merge(nested, _nest(names, _parse(value, f"--set {key}")))
    return nested


def _nest(names: list[str], value: Any) -> dict[str, Any]:
    for name in reversed(names):
        value = {name: value}
    return typing.cast(dict[str, Any], value)


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Put `new` into `into`, in place, mapping by mapping."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def _get(data: Any, names: list[str], source: str) -> Any:
    """The value under nested keys, None where there is none; UserError when one holds no keys."""
    for depth, name in enumerate(names):
        if data is None:
            return None
        if not isinstance(data, dict):
            above = ".".join(names[:depth])
            raise UserError(f"{source}: {above} = {data!r}, where `key: value` pairs are needed")
        data = data.get(name)
    return data


def fill_shorthands(data: dict[str, Any], shorthands: dict[str, str], source: str) -> None:
    """Make each top-level shorthand and the nested key that it stands for equal, in place.

    `shorthands` maps "episode_s" to "env.episode_s", say. UserError when both are given
    and differ, or when `env` is something else than keys with values.
    """
    for short, full in shorthands.items():
        names = full.split(".")
        above, below = data.get(short), _get(data, names, source)
        if above is not None and below is not None and above != below:
            raise UserError(
                f"{source}: {short} = {above!r} and {full} = {below!r} are the same setting; "
                "give one of them, or both the same value"
            )
        value = below if above is None else above
        if value is not None:
            data[short] = value
            merge(data, _nest(names, value))


def load(
    cls: type[T],
    path: str | Path,
    overrides: Iterable[str] = (),
    shorthands: dict[str, str] | None = None,
) -> T:
    """A `cls` from a YAML file, `--set` overrides winning; UserError says what is wrong."""
    overrides = list(overrides)
    data, changes = read_yaml(path), read_overrides(overrides)
    fill_shorthands(data, shorthands or {}, str(path))
    fill_shorthands(changes, shorthands or {}, "--set")
    merge(data, changes)
    return validate(cls, data, source(path, overrides))


def source(path: str | Path, overrides: list[str]) -> str:
    """Where a setting comes from, for error sentences."""
    return f"{path} with --set {' '.join(overrides)}" if overrides else str(path)


def validate(cls: type[T], data: dict[str, Any], where: str | Path, prefix: str = "") -> T:
    """A `cls` from plain data, strictly typed (an integer passes for a number, nothing else).

    `where` the data comes from, and `prefix`, where it lies in there ("env."), are for the
    error's sentence.
    """
    try:
        text = json.dumps(_with_tags(cls, data))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: {error}; a configuration holds plain values only") from None
    try:
        return TypeAdapter(cls).validate_json(text, strict=True)
    except ValidationError as error:
        raise UserError(f"{where}: {_sentence(cls, error, prefix)}") from None


def _with_tags(cls: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The data, a choice that leaves out its `name` being the default one."""
    tagged = dict(data)
    for key, field in _fields(cls).items():
        given = data.get(key)
        if field.discriminator and isinstance(given, dict):
            tagged[key] = {field.discriminator: getattr(field.default, "name", None), **given}
    return tagged


def dump(config: Any) -> dict[str, Any]:
    """Plain data (JSON types) that `validate` turns back into an equal configuration."""
    data: dict[str, Any] = TypeAdapter(type(config)).dump_python(config, mode="json")
    return data


def _sentence(cls: Any, error: ValidationError, prefix: str) -> str:
    first = error.errors(include_url=False)[0]
    names, owner = _locate(cls, first["loc"])
    key = (prefix + ".".join(names)).removesuffix(".")
    more = "" if error.error_count() == 1 else f" (and {error.error_count() - 1} more like this)"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = ", ".join(sorted(_fields(owner)))
        return f"unknown key {key}; the keys known there are {known}{more}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{key}: {message}{more}" if key else f"{message}{more}"
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        got = first.get("ctx", {}).get("tag", "nothing")
        allowed = ", ".join(_members(_fields(owner)[names[-1]].annotation))
        return f"{key}.name is {got}, where one of {allowed} is needed{more}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{key} is missing{more}"
    return f"{key} = {first['input']!r}, but {message[:1].lower()}{message[1:]}{more}"


def _fields(cls: Any) -> dict[str, Any]:
    return getattr(cls, "__pydantic_fields__", {})


def _members(annotation: Any) -> dict[str, Any]:
    """The dataclasses that an annotation allows, by the tag in their `name` field."""
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    found = {}
    for option in options:
        if isinstance(option, type) and is_dataclass(option):
            name = _fields(option).get("name")
            tag = typing.get_args(name.annotation) if name else ()
            found[str(tag[0]) if tag else option.__name__] = option
    return found


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _locate(cls: Any, loc: tuple[int | str, ...]) -> tuple[list[str], Any]:
    """Key names of a pydantic location, tags of unions left out, and the dataclass it is in."""
    names: list[str] = []
    owner: Any = cls
    members: dict[str, Any] = {}
    for part in loc:
        if part in members:
            owner, members = members[str(part)], {}
            continue
        if len(members) == 1:
            owner = next(iter(members.values()))
        names.append(str(part))
        field = _fields(owner).get(str(part))
        members = _members(field.annotation) if field else {}
    return names, owner


def _type_name(annotation: Any) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is typing.Literal:
        return "|".join(str(arg) for arg in args)
    if _is_union(annotation):
        return "|".join(_type_name(arg) for arg in args)
    if origin is tuple:
        return "[" + ", ".join("..." if arg is ... else _type_name(arg) for arg in args) + "]"
    if origin is not None:
        return str(getattr(origin, "__name__", origin))
    return str(getattr(annotation, "__name__", annotation))


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "min_length": "length >="}


def _limits(metadata: Iterable[Any]) -> str:
    limits = [
        f"{sign} {getattr(item, name):g}"
        for item in metadata
        for name, sign in _SIGNS.items()
        if getattr(item, name, None) is not None
    ]
    return " " + ", ".join(limits) if limits else ""


def describe(cls: Any, prefix: str = "", remark: str = "", defaults: Any = None) -> str:
    """Every field of a configuration: key, default, type and allowed range, description.

    `defaults` is an instance whose values are shown instead of the class's defaults.
    """
    lines = []
    for name, field in _fields(cls).items():
        default = field.get_default(call_default_factory=True, validated_data={})
        default = getattr(defaults, name, default)
        members = _members(field.annotation)
        for tag, member in members.items():
            which = "" if len(members) == 1 else f" (for {prefix}{name}.name={tag})"
            given = default if isinstance(default, member) else None
            lines.append(describe(member, f"{prefix}{name}.", remark + which, given))
        if not members:
            shown = "" if field.is_required() else f" = {json.dumps(default, default=str)}"
            text = " ".join((field.description or "").split())
            allowed = _type_name(field.annotation) + _limits(field.metadata)
            lines.append(f"  {prefix}{name}{shown}   [{allowed}]{remark}\n      {text}")
    return "\n".join(lines)
