"""YAML text as plain data, bounded in size even with aliases, and without ambiguous scalars.

The core schema of YAML 1.2, less what YAML 1.1 reads otherwise (`training.io.yaml_scalars`),
with aliases and merge keys (`<<`). A key that is given twice is an error.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from training.command.command_lines import preset
from training.command.errors import UserError, shown
from training.command.suggestions import like_files
from training.io.yaml_scalars import AMBIGUOUS, PLAIN, ScalarError, read_scalar

__all__ = ["parse", "read_yaml", "to_yaml"]

MAX_BYTES = 2**18
"""Size limit of a text; configurations have a few thousand."""
MAX_NODES = 10_000
"""Values, lists and keys, those that aliases and merges repeat counted each time."""
MAX_DEPTH = 64
_TAG, _MERGE = "tag:yaml.org,2002:", "tag:yaml.org,2002:merge"
_FIRST = {
    AMBIGUOUS: "-+.0123456789yYnNoO", "int": "-+0123456789", "float": "-+.0123456789",
    "bool": "tTfF", "null": ["~", "n", "N", ""], "timestamp": "0123456789",
}  # fmt: skip
"""Characters that a plain scalar of a kind begins with."""


Key = tuple[str, ...]
"""Where a value stands: the names of mappings and the numbers in lists that lead to it."""


class _NotPlainError(yaml.YAMLError):
    """Raised for YAML content that a configuration must not have; `key` is its position."""

    def __init__(self, problem: str, node: yaml.Node, key: Key = ()) -> None:
        where = ".".join(key)[-80:]
        super().__init__(f"{where}: {problem}" if where else problem)
        self.line = node.start_mark.line + 1


class _Loader(yaml.SafeLoader):
    """Makes nodes of a text, at most MAX_NODES."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - this project's own, below
    composed = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """As in the base class, but rejects too many nodes before they take memory."""
        self.composed += 1
        node = super().compose_node(parent, index)
        if self.composed > MAX_NODES:
            raise _too_many(node)
        return node


for _kind, _pattern in PLAIN.items():
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    _Loader.add_implicit_resolver(_TAG + _kind, _whole, [*_FIRST[_kind]])
_Loader.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])


class _Dumper(yaml.SafeDumper):
    """Quotes text that the loader would take for something else, and writes all out."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    def ignore_aliases(self, _: Any) -> bool:
        """Whether repeated values are written without aliases."""
        return True


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises UserError if it is missing, unreadable or no mapping."""
    try:
        text = _read(path)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or no file's name
        reason = getattr(error, "strerror", None) or "not a text file"
        hint = like_files(Path(path), preset("")) if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read the configuration {path}: {reason}{hint}") from None
    data = parse(text, str(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold `key: value` lines, but holds a {type(data).__name__}")
    return data


def _read(path: str | Path) -> str:
    if stat.S_ISFIFO(os.stat(path).st_mode):  # commands read a configuration several times
        raise OSError(0, "it is a pipe, where a file is needed")
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(0, f"it has more than {MAX_BYTES} bytes")
    return data.decode()


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
        if node is None:
            return None
        if _size(node, {}) > MAX_NODES:
            raise _too_many(node)
        return _build(node, ())
    except _NotPlainError as error:
        line = f" (line {error.line})" if "\n" in text else ""
        raise UserError(f"{source}: {error}{line}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    except (ValueError, LookupError, OverflowError) as error:  # the scanner's, of odd escapes
        raise UserError(f"{source} is not valid YAML: {error}") from None
    except RecursionError:
        raise UserError(f"{source} is not valid YAML: it is nested too deeply") from None


def _too_many(node: Any) -> _NotPlainError:
    counted = "counting what aliases and merges repeat each time"
    return _NotPlainError(f"it holds more than {MAX_NODES} values, {counted}", node)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of nodes below this one with aliases expanded, counted without expanding them."""
    if id(node) not in known:
        known[id(node)] = 0  # while it is counted
        below = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            below = [part for pair in below for part in pair]
        known[id(node)] = 1 + sum(_size(part, known) for part in below)
    if known[id(node)] == 0:
        raise _invalid("found unconstructable recursive node", node)
    return known[id(node)]


def _invalid(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _build(node: yaml.Node, key: Key) -> Any:
    """The value of a node that stands at `key`."""
    if len(key) > MAX_DEPTH:
        raise _invalid("it is nested too deeply", node)
    kind = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_build(part, (*key, str(i))) for i, part in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode) and kind == "map":
        return _mapping(node, key)
    if isinstance(node, yaml.ScalarNode) and kind in (*PLAIN, "str", "merge"):
        return _scalar(node, "str" if kind == "merge" else kind, key)
    tag = node.tag.replace(_TAG, "!!")[:80]
    problem = f"the tag {tag} is not known; a configuration holds plain values only"
    raise _NotPlainError(problem, node, key)


def _mapping(node: yaml.MappingNode, key: Key) -> dict[str, Any]:
    own: dict[str, Any] = {}
    merged: dict[str, Any] | None = None
    for name_node, value_node in node.value:
        if name_node.tag == _MERGE:
            if merged is not None:
                raise _NotPlainError("key '<<' is given twice, but takes a list", name_node, key)
            merged = _merged(value_node, (*key, "<<"))
            continue
        name = _build(name_node, key)
        if not isinstance(name, str):
            raise _NotPlainError(f"a key is text, got {_written(name_node)}", name_node, key)
        if name in own:
            raise _NotPlainError(f"key {shown(name)} is given twice", name_node, key)
        own[name] = _build(value_node, (*key, name))
    return {**(merged or {}), **own}


def _merged(node: yaml.Node, key: Key) -> dict[str, Any]:
    """The pairs merged by `<<`; if several mappings have a key, the first one applies."""
    merged: dict[str, Any] = {}
    for part in reversed(node.value if isinstance(node, yaml.SequenceNode) else [node]):
        value = _build(part, key)
        if not isinstance(value, dict):
            problem = f"it takes a mapping or a list of mappings, got {_written(part)}"
            raise _NotPlainError(problem, part, key)
        merged.update(value)
    return merged


def _written(node: Any) -> str:
    """A node for an error message: the scalar's text, shortened."""
    return node.value[:40] if isinstance(node, yaml.ScalarNode) else f"a {node.id}"


def _scalar(node: yaml.ScalarNode, kind: str, key: Key) -> Any:
    text = node.value
    try:
        if kind == "timestamp":
            yaml.SafeLoader("").construct_yaml_timestamp(node)
            problem = f"{text} is a date, but a configuration holds plain values only; quote a text"
            raise _NotPlainError(problem, node, key)
        return read_scalar(kind, text)
    except ScalarError as error:
        raise _NotPlainError(str(error), node, key) from None
    except (ValueError, AttributeError):  # AttributeError: of construct_yaml_timestamp
        raise _invalid(f"{text[:40]!r} is no {kind}", node) from None
