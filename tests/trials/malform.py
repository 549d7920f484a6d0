"""Making good files bad: values, YAML text, JSON, bytes, safetensors and HDF5, all from a seed."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

BAD_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "no", "../../x", "a\0b", "\u00e9", "a" * 300, "10", -1, 0, 1, 7,
    2**31, 2**63, 10**12, 10**30, 1e-320, 0.5, 1e9, 1e308, math.nan, math.inf, -math.inf,
    [], [[]], [1, 2, 3], [0, 0], [1e9, 1e9], list(range(500)), {}, {"a": 1}, {"name": "x"},
    "softmax", "clustered_hybrid", "vision_performer", "implicit_attention", "module:Thing-v0",
)  # fmt: skip
BAD_TEXTS = (
    "a: &a [*a]\n",
    "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 4)}]\n" if i else "a0: &a0 [x, x, x, x]\n"
        for i in range(12)
    ),
    "seed: 010\n", "seed: 1:30\n", "seed: 0x1F\n", "? [1, 2]\n: 3\n", "seed: 2020-01-01\n",
    "seed: !!python/object/apply:os.system [ls]\n", "seed: !!binary aGVsbG8=\n", "<<: 3\n",
    "seed: 1\nseed: 2\n", "env: {<<: {episode_s: 0.3}, episode_s: 0.2}\n", "\t- x\n", "---\n---\n",
    "[" * 3000, "policy: " + "{a: " * 200, "\x00", "\ufeff", "seed: " + "9" * 5000, "%YAML 9.9\n",
)  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of nested dicts and lists lie, inner ones too."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def spoiled(data: Any, chance: random.Random) -> Any:
    """A copy of nested dicts and lists with one value another, one gone, or one too many."""
    data = json.loads(json.dumps(data))
    where = list(places(data))
    if not where:
        return chance.choice(BAD_VALUES)
    *above, last = chance.choice(where)
    holder = data
    for key in above:
        holder = holder[key]
    kind = chance.random()
    if kind < 0.75:
        holder[last] = chance.choice(BAD_VALUES)
    elif kind < 0.9:
        del holder[last]
    elif isinstance(holder, dict):
        holder[f"{last}x"] = chance.choice(BAD_VALUES)
    else:
        holder.insert(last, chance.choice(BAD_VALUES))
    return data


def spoil_text(text: str, chance: random.Random) -> str:
    """Text with a part cut off, doubled or exchanged, or a bad one put in."""
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    kind = chance.randrange(5)
    if kind == 0:
        return text[: chance.randrange(len(text) + 1)]
    if kind == 1:
        return "".join([*lines[:at], chance.choice(BAD_TEXTS), *lines[at:]])
    if kind == 2:
        return chance.choice(BAD_TEXTS)
    if kind == 3:
        return "".join([*lines[:at], lines[at], *lines[at:]])
    characters = list(text)
    for _ in range(chance.randrange(1, 6)):
        if characters:
            characters[chance.randrange(len(characters))] = chance.choice("\0:[]{}&*!%@`\"'\t-,#x9")
    return "".join(characters)


def spoil_bytes(data: bytes, chance: random.Random) -> bytes:
    """Bytes cut short, prolonged, or some of them changed; those at the beginning more often."""
    kind = chance.randrange(4)
    if kind == 0:
        return data[: chance.randrange(len(data))]
    if kind == 1:
        return data + chance.randbytes(chance.randrange(1, 5000))
    changed = bytearray(data)
    span = len(data) if kind == 2 else min(len(data), 2000)
    for _ in range(chance.randrange(1, 9)):
        changed[chance.randrange(span)] = chance.randrange(256)
    return bytes(changed)


def spoil_safetensors(data: bytes, chance: random.Random) -> bytes:
    """A checkpoint with another header: configuration, counters, or a tensor's shape and type."""
    if chance.random() < 0.25:
        return spoil_bytes(data, chance)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header["__metadata__"]
    kind = chance.randrange(4)
    if kind <= 1:
        part = "config" if kind == 0 else "state"
        metadata[part] = json.dumps(spoiled(json.loads(metadata[part]), chance))
    elif kind == 2:
        metadata[chance.choice(sorted(metadata))] = chance.choice(("", "null", "[]", "[" * 10**5))
    else:
        name = chance.choice(sorted(header.keys() - {"__metadata__"}))
        change = chance.randrange(4)
        if change == 0:
            header[f"{name}x"] = header.pop(name)
        elif change == 1:
            header[name]["dtype"] = chance.choice(("F16", "F64", "I8", "BOOL", "F32", "?"))
        elif change == 2:
            header[name]["shape"] = chance.choice(([], [0], [1, *header[name]["shape"]], [2**40]))
        else:
            begin, end = header[name]["data_offsets"]
            body = bytearray(data)
            body[8 + size + begin : 8 + size + end] = b"\xff" * (end - begin)  # NaN
            data = bytes(body)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def spoil_hdf5(path: Path, chance: random.Random) -> None:
    """Change a demonstration's file: an attribute, a dataset, or its bytes."""
    if chance.random() < 0.3:
        path.write_bytes(spoil_bytes(path.read_bytes(), chance))
        return
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        holder = file[chance.choice(["/", *names])]
        if len(holder.attrs) and chance.random() < 0.6:
            _spoil_attribute(holder, chance.choice(sorted(holder.attrs)), chance)
            return
        name = chance.choice(names)
        old = file[name]
        del file[name]
        if chance.random() < 0.7:
            shapes = ((), (0,), (3,), (10**12,), (*getattr(old, "shape", ()), 2))
            shape, dtype = chance.choice(shapes), chance.choice(("f4", "f8", "u1", "i8", "S5"))
            file.create_dataset(name, shape, dtype, chunks=None if shape in ((), (0,)) else True)


def _spoil_attribute(holder: Any, name: str, chance: random.Random) -> None:
    value = holder.attrs[name]
    del holder.attrs[name]
    kind = chance.random()
    if kind < 0.2:
        return
    if isinstance(value, str) and value.startswith("{") and kind < 0.8:
        holder.attrs[name] = json.dumps(spoiled(json.loads(value), chance))
    else:
        bad = ("x", "", -1, 2**62, 1e308, math.nan, np.zeros(3), np.array([], "f4"), True)
        holder.attrs[name] = chance.choice(bad)
