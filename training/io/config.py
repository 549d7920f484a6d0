"""Configuration: YAML files and `--set` overrides become frozen, validated dataclasses."""

import argparse
import ast
import inspect
import itertools
import json
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from foveate_settings import sentence
from training.command.errors import UserError, did_you_mean, shown
from training.command.signals import exit_status as exit_status
from training.io.overrides import Overrides, fill_shorthands, merge, read_overrides, source
from training.io.overrides import merge_distinct as merge_distinct
from training.io.yaml_text import read_yaml
from training.io.yaml_text import to_yaml as to_yaml

T = TypeVar("T")
_NAMED = {"DIR": "a directory", "FILE": "a file", "RUN": "a run directory"}
"""Nouns for an option's value, by its metavar."""
FORMER = {
    "--anyway": "--force",
    "--arms": "--variants",
    "--orders": "--claims",
    "--own": "--custom",
}
"""Former names of options, which still work, and their names now."""


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose errors are UserErrors, like every other mistake on a command line."""

    def error(self, message: str) -> NoReturn:
        """Raise the UserError; it suggests the likely spelling of a misspelled option or choice."""
        options = [name for action in self._actions for name in action.option_strings]
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        option = re.match(r"unrecognized arguments: .*?(--[^\s=]+)", message)
        hint = ""
        if choice:
            hint = did_you_mean(choice[1], re.findall(r"[^\s',]+", choice[2]))
        elif option:
            hint = did_you_mean(option[1], options)
        raise UserError(f"{self.prog}: {message} (--help lists what is allowed){hint}")

    def parse_known_args(self, *given: Any, **more: Any) -> Any:
        """Like argparse's method, but an empty file or directory name, such as from an unset shell
        variable, is a UserError instead of the default. A former option prints its new name."""
        words = given[0] if given and given[0] is not None else sys.argv[1:]
        found, rest = super().parse_known_args(*given, **more)
        for action in self._actions:
            for former in (set(action.option_strings) & FORMER.keys()).intersection(words):
                if FORMER[former] in action.option_strings:
                    print(f"note: {former} is now {FORMER[former]}", file=sys.stderr)
            kind = _NAMED.get(action.metavar) if isinstance(action.metavar, str) else None
            if kind and getattr(found, action.dest, None) == "":
                raise UserError(f"{action.option_strings[-1]} must name {kind}, got ''")
        return found, rest


def number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], Any]:
    """A number within [low, high], as the type of an argument."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            what = "an integer" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"must be {what} from {low:g} to {high:g}, got {text!r}"
            )
        return value

    return read


def load(
    cls: type[T],
    path: str | Path,
    overrides: Iterable[str] = (),
    shorthands: dict[str, str] | None = None,
) -> T:
    """Build a `cls` from a YAML file, with `--set` overrides on top; raises UserError."""
    overrides = list(overrides)
    return combine(cls, read_yaml(path), read_overrides(overrides), path, overrides, shorthands)


def combine(
    cls: type[T],
    data: dict[str, Any],
    changes: dict[str, Any],
    path: str | Path,
    overrides: Overrides,
    shorthands: dict[str, str] | None = None,
    names: Callable[[dict[str, Any]], Iterable[str]] | None = None,
) -> T:
    """Build a `cls` from the data of the file `path`, with `overrides` on top.

    `names` are the keys that are suggested for an unknown one (default: those of `cls`)."""
    fill_shorthands(data, shorthands or {}, str(path))
    fill_shorthands(changes, shorthands or {}, "--set")
    merge(data, changes)
    known = keys(cls) if names is None else names(data)
    return validate(cls, data, source(path, overrides), names=known)


def validate(
    cls: type[T], data: dict[str, Any], where: str | Path, prefix: str = "",
    names: Iterable[str] = (),
) -> T:  # fmt: skip
    """Build a `cls` from plain data, strictly typed (only an integer is accepted as a number).

    The error names the source `where` and the key with its `prefix` ("env."); for an unknown key it
    suggests one of `names` (default: those of `cls`).
    """
    check_finite(data, where, prefix)
    try:
        text = json.dumps(_with_tags(cls, data))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: {error}; a configuration holds plain values only") from None
    try:
        return TypeAdapter(cls).validate_json(text, strict=True)
    except ValidationError as error:
        raise UserError(f"{where}: {_sentence(cls, error, prefix, names)}") from None


def check_finite(data: dict[str, Any] | Sequence[Any], where: str | Path, prefix: str = "") -> None:
    """UserError for the first number that is not finite: files of results hold no such."""
    parts: Iterable[Any] = data.items() if isinstance(data, dict) else enumerate(data)
    for name, value in parts:
        key = f"{prefix}{name}"
        if isinstance(value, dict | list | tuple):
            check_finite(value, where, f"{key}.")
        elif isinstance(value, float) and not math.isfinite(value):
            written = str(value).replace("inf", ".inf").replace("nan", ".nan")
            raise UserError(
                f"{where}: {key} = {value}, but input should be a finite number, not {written}"
            )


def _with_tags(cls: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The data, with the default `name` for choices that omit it."""
    tagged = dict(data)
    for key, field in _fields(cls).items():
        given = data.get(key)
        if field.discriminator and isinstance(given, dict):
            tagged[key] = {field.discriminator: getattr(field.default, "name", None), **given}
    return tagged


def dump(config: Any) -> dict[str, Any]:
    """Plain data (JSON types) that `validate` turns back into an equal configuration."""
    # Not by pydantic: Control-C in a union's Python code is to it a member that does not fit.
    return {field.name: _plain(getattr(config, field.name)) for field in fields(config)}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return dump(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value


def keys(cls: Any, prefix: str = "") -> list[str]:
    """Every key of a configuration, dotted if nested, including keys that contain others."""
    found = []
    for name, field in _fields(cls).items():
        found.append(prefix + name)
        for member in choices_of(field.annotation).values():
            found += keys(member, f"{prefix}{name}.")
    return found


def _sentence(cls: Any, error: ValidationError, prefix: str, names: Iterable[str]) -> str:
    found = [(*_locate(cls, one["loc"]), one) for one in error.errors(include_url=False)]
    place = found[0][0]
    of_it = [one for one in found if one[0][: len(place)] == place]  # of every type that it may be
    place, owner, first = max(of_it, key=lambda one: len(one[0]))
    key = (prefix + ".".join(place)).removesuffix(".")
    more = f" (and {len(found) - len(of_it)} more like this)" if len(found) > len(of_it) else ""
    said = sentence({**first}, _fields(owner), key=key, shown=shown)
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{said}{more}{did_you_mean(key, [*names] or keys(cls, prefix))}"
    if first["type"] == "value_error":
        choice = re.search(r"must be one of (?:the variants )?(.*), got '(.*?)'(;|$)", said)
        said += did_you_mean(choice[2], choice[1].split(", ")) if choice else ""
        return f"{key}: {said}{more}" if key else f"{said}{more}"
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        got = first.get("ctx", {}).get("tag", "nothing")
        known = choices_of(_fields(owner)[place[-1]].annotation)
        hint = did_you_mean(str(got), known)
        return f"{key}.name is {got}, where one of {', '.join(known)} is needed{more}{hint}"
    choices = re.findall(r"'(.*?)'", str(first.get("ctx", {}).get("expected", "")))
    return f"{said}{more}{did_you_mean(str(first.get('input')), choices)}"


def _fields(cls: Any) -> dict[str, Any]:
    return getattr(cls, "__pydantic_fields__", {})


def choices_of(annotation: Any) -> dict[str, Any]:
    """The dataclasses that an annotation allows, by the tag in their `name` field."""
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    found = {}
    for option in options:
        tagged = typing.get_origin(option) is typing.Annotated
        cls, *marks = typing.get_args(option) if tagged else (option,)
        if isinstance(cls, type) and is_dataclass(cls):
            name = _fields(cls).get("name")
            tag = [mark.tag for mark in marks] or typing.get_args(name.annotation if name else None)
            found[str(tag[0]) if tag else cls.__name__] = cls
    return found


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _members(annotation: Any) -> list[Any]:
    return [one for one in typing.get_args(annotation) if one is not type(None)]


def _locate(cls: Any, loc: tuple[int | str, ...]) -> tuple[list[str], Any]:
    """Key names of a pydantic location, tags of unions left out, and the dataclass it is in."""
    names: list[str] = []
    owner, annotation = cls, None  # `annotation` is that of the part before
    for part in loc:
        members = choices_of(annotation)
        if part in members:
            owner, annotation = members[str(part)], None
            continue
        if not members and _is_union(annotation) and len(_members(annotation)) > 1:
            annotation = None  # the part names one of the union's types
            continue
        names.append(str(part))
        if typing.get_origin(annotation) is dict:
            owner, annotation = typing.get_args(annotation)[1], None
            continue
        owner = next(iter(members.values())) if len(members) == 1 else owner
        field = _fields(owner).get(str(part))
        annotation = field.annotation if field else None
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
    named = annotation if origin is None else origin
    return str(getattr(named, "__name__", named))


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "min_length": "length >="}


def _limits(metadata: Iterable[Any]) -> str:
    found = [
        (sign, getattr(item, name, None)) for item in metadata for name, sign in _SIGNS.items()
    ]
    limits = ", ".join(f"{sign} {limit:g}" for sign, limit in found if limit is not None)
    return f" {limits}" if limits else ""


def describe(cls: Any, prefix: str = "") -> str:
    """Every field of a configuration: key, default, type and allowed range, description."""
    found = _described(cls, prefix, None)
    return "\n".join(f"  {head}{which}\n      {text}" for head, which, text in found)


def description(cls: Any, name: str) -> str:
    """The description of a field, or the text under it, possibly of a base class of `cls`."""
    for base in cls.__mro__:
        field = _fields(base).get(name)
        text = (field.description if field else None) or _texts(base).get(name)
        if text:
            return str(text)
    return ""


@cache
def _texts(cls: type) -> dict[str, str]:
    """The texts under the attributes of a class, by name.

    Read on demand: `use_attribute_docstrings` of pydantic takes a quarter of a start.
    """
    for node in _tree(cls.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return {
                attribute.target.id: inspect.cleandoc(text.value.value)
                for attribute, text in itertools.pairwise(node.body)
                if isinstance(attribute, ast.AnnAssign)
                and isinstance(attribute.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    return {}


@cache
def _tree(module: str) -> ast.Module:
    """The source of a module; an empty one if it is not at hand."""
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return ast.Module([], [])


def _described(cls: Any, prefix: str, defaults: Any) -> list[tuple[str, str, str]]:
    """For every field: key, default and type; the choice that it belongs to; and description.

    `defaults` is an instance whose values replace the class's defaults.
    """
    found = []
    for name, field in _fields(cls).items():
        default = field.get_default(call_default_factory=True, validated_data={})
        default = getattr(defaults, name, default)
        members = choices_of(field.annotation)
        tags: dict[tuple[str, str, str], list[str]] = {}  # shared fields are shown once
        for tag, member in members.items():
            given = default if isinstance(default, member) else None
            for entry in _described(member, f"{prefix}{name}.", given):
                tags.setdefault(entry, []).append(tag)
        for (head, which, text), of in tags.items():
            own = "" if len(of) == len(members) else f" (for {prefix}{name}.name={'|'.join(of)})"
            found.append((head, which + own, text))
        if not members:
            shown = "" if field.is_required() else f" = {json.dumps(default, default=str)}"
            text = " ".join(description(cls, name).split())
            allowed = _type_name(field.annotation) + _limits(field.metadata)
            found.append((f"{prefix}{name}{shown}   [{allowed}]", "", text))
    return found
