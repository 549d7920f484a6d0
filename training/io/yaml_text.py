"""YAML text as plain data, bounded in size even with aliases, and without ambiguous scalars.

The core schema of YAML 1.2 with aliases and merge keys (`<<`). What YAML 1.1 reads differently is
an error that says what to write instead: YAML 1.1 takes 010 for 8, 1:30 for 90 and yes for true,
and users may mean either. 1e-3, which is text in YAML 1.1 only, is a number. A key that is given
twice is an error.
"""

import math
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from training.command.errors import UserError, like_files, preset, shown

MAX_BYTES = 2**18
"""Size limit of a text; configurations have a few thousand."""
MAX_NODES = 10_000
"""Values, lists and keys, those that aliases and merges repeat counted each time."""
MAX_DEPTH = 64
_TAG, _MERGE = "tag:yaml.org,2002:", "tag:yaml.org,2002:merge"
_PLAIN = {
    "ambiguous": re.compile(
        r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"
        r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*"  # base 60
        r"|[-+]?0[bo][0-7_]+|[-+]0x[0-9a-fA-F_]+|0x[0-9a-fA-F]*_[0-9a-fA-F_]*|[-+]?0[0-9_]+"
        r"|[-+]?(?=[0-9.]*_)(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
    ),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "null": re.compile("~|null|Null|NULL|"),
    "timestamp": re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?"),
}
"""Patterns of plain scalars that are not text, by kind; the first match decides."""

Key = tuple[str, ...]
"""The path to a value: names in mappings and indices in lists."""


class _NotPlainError(yaml.YAMLError):
    """Raised for YAML content that a configuration must not have, at the path `key`."""

    def __init__(self, problem: str, node: yaml.Node, key: Key = ()) -> None:
        where = ".".join(key)[-80:]
        super().__init__(f"{where}: {problem}" if where else problem)
        self.line = node.start_mark.line + 1


class _Loader(yaml.SafeLoader):
    """Reads a text as plain data; composes and builds at most MAX_NODES nodes each."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - this project's own, below

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._composed = self._built = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node, but reject too many of them before they take memory."""
        node = super().compose_node(parent, index)
        self._composed = self._counted(self._composed, node)
        return node

    @staticmethod
    def _counted(count: int, node: Any) -> int:
        if count >= MAX_NODES:
            repeated = "counting what aliases and merges repeat each time"
            raise _NotPlainError(f"it holds more than {MAX_NODES} values, {repeated}", node)
        return count + 1

    def build(self, node: yaml.Node, key: Key = ()) -> Any:
        """The value of a node at the path `key`; an alias is built again each time."""
        self._built = self._counted(self._built, node)
        if len(key) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=node.start_mark)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.build(part, (*key, str(i))) for i, part in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, key)
        if isinstance(node, yaml.ScalarNode) and kind in (*_PLAIN, "str", "merge"):
            try:
                return _scalar(kind, node.value)
            except ValueError as error:
                raise _NotPlainError(str(error), node, key) from None
        tag = node.tag.replace(_TAG, "!!")[:80]
        problem = f"the tag {tag} is not known; a configuration holds plain values only"
        raise _NotPlainError(problem, node, key)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] | None = None
        for name_node, value_node in node.value:
            if name_node.tag == _MERGE:
                if merged is not None:
                    problem = "key '<<' is given twice, but takes a list"
                    raise _NotPlainError(problem, name_node, key)
                merged = self._merged(value_node, (*key, "<<"))
                continue
            name = self.build(name_node, key)
            if not isinstance(name, str):
                raise _NotPlainError(f"a key is text, got {_written(name_node)}", name_node, key)
            if name in own:
                raise _NotPlainError(f"key {shown(name)} is given twice", name_node, key)
            own[name] = self.build(value_node, (*key, name))
        return {**(merged or {}), **own}

    def _merged(self, node: yaml.Node, key: Key) -> dict[str, Any]:
        """The pairs merged by `<<`; if several mappings have a key, the first one applies."""
        merged: dict[str, Any] = {}
        for part in reversed(node.value if isinstance(node, yaml.SequenceNode) else [node]):
            value = self.build(part, key)
            if not isinstance(value, dict):
                problem = f"it takes a mapping or a list of mappings, got {_written(part)}"
                raise _NotPlainError(problem, part, key)
            merged.update(value)
        return merged


for _kind, _pattern in _PLAIN.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern.pattern})\Z"), None)
_Loader.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])


class _Dumper(yaml.SafeDumper):
    """Quotes text that the loader would take for something else; writes no aliases."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    def ignore_aliases(self, _: Any) -> bool:
        return True


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises UserError if it is missing, unreadable or no mapping."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):  # commands read a configuration several times
            raise OSError(0, "it is a pipe, where a file is needed")
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise OSError(0, f"it has more than {MAX_BYTES} bytes")
        text = content.decode()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a valid file name
        reason = getattr(error, "strerror", None) or "not a text file"
        hint = like_files(Path(path), preset("")) if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read the configuration {path}: {reason}{hint}") from None
    data = parse(text, str(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold `key: value` lines, but holds a {type(data).__name__}")
    return data


def to_yaml(data: dict[str, Any], heading: str) -> str:
    """A resolved configuration as text that `read_yaml` reads back unchanged."""
    body = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True
    )
    return f"# {heading}\n{body}"


def parse(text: str, source: str) -> Any:
    """The plain data in a YAML text: dicts with text as keys, lists, text, numbers, booleans and
    None, nothing of it shared. UserError, which begins with `source`, for anything else."""
    if len(text) > MAX_BYTES:
        raise UserError(f"{source} has more than {MAX_BYTES} characters")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else loader.build(node)
    except _NotPlainError as error:
        line = f" (line {error.line})" if "\n" in text else ""
        raise UserError(f"{source}: {error}{line}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    except (ValueError, LookupError, OverflowError) as error:  # the scanner's, of odd escapes
        raise UserError(f"{source} is not valid YAML: {error}") from None
    except RecursionError:
        raise UserError(f"{source} is not valid YAML: it is nested too deeply") from None


def _written(node: Any) -> str:
    """A node for an error message: the scalar's text, shortened."""
    return node.value[:40] if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def _scalar(kind: str, text: str) -> Any:
    """The value of a scalar of a kind: "str", "merge" or one of _PLAIN. Raises ValueError with the
    sentence for one that is ambiguous, not of the kind, or too large."""
    if kind in ("str", "merge"):
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"{text[:40]!r} holds a NUL or an incomplete character")
        return text
    if _PLAIN["ambiguous"].fullmatch(text):
        raise ValueError(_advice(text))
    if kind == "timestamp" and _PLAIN[kind].fullmatch(text):
        raise ValueError(
            f"{text[:40]} is a date, but a configuration holds plain values only; quote a text"
        )
    kinds = ("float", "int") if kind == "float" else (kind,)
    if not any(_PLAIN[one].fullmatch(text) for one in kinds):
        raise ValueError(f"{text[:40]!r} is no {kind}")
    if kind in ("null", "bool"):
        return text.lower() == "true" if kind == "bool" else None
    if kind == "int":
        if len(text) > 1000:  # Python reads and writes at most 4300 digits
            raise ValueError(f"{text[:40]}... is too large for a number")
        return int(text, 16 if text.startswith("0x") else 10)
    value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _advice(text: str) -> str:
    """The error of an ambiguous scalar: what to write instead."""
    if len(text) > 40:
        return f"{text[:40]}... is ambiguous; write a decimal number, or a text in quotes"
    readings: dict[str, None] = {}
    for read in (int, float, lambda digits: int(digits, 0), yaml.safe_load):  # the last: YAML 1.1
        with suppress(ValueError):
            value = read(text.replace("_", ""))
            if isinstance(value, bool):
                readings[str(value).lower()] = None
            elif isinstance(value, int | float):
                readings[f"{value:.15g}" if isinstance(value, float) else str(value)] = None
    advice = " or ".join(readings) or "a decimal number"
    return f"{text} is ambiguous; write {advice}, or '{text}' in quotes where a text is meant"
