"""Validation of an untrusted ONNX file before it is loaded; it does not need NumPy.

ONNX files are protocol buffers. What is refused: tensors whose numbers lie in other files,
operators beyond the standard ones, and a nesting or size that no exported policy has.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LARGEST_BYTES", "check_model", "read_file"]

LARGEST_BYTES = 1 << 30
_DEEPEST = 12
_VARINT, _EIGHT, _MESSAGE, _FOUR = 0, 1, 2, 5
# Numbers of the fields of ONNX's messages (onnx.proto) that lead to tensors and operators.
_TENSOR, _SPARSE, _GRAPH, _NODE, _ATTRIBUTE, _FUNCTION, _MODEL = range(7)
_CHILDREN = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _FUNCTION: {7: _NODE},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_DOMAIN = 7
_STANDARD = (b"", b"ai.onnx")


def read_file(folder: Path, name: str, largest: int) -> bytes:
    """Read a regular file of a folder; links are not followed.

    Raises:
        ValueError: one sentence, if there is no such file or if it is too large.
    """
    path = folder / name
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise ValueError(f"{path} must be a plain file")
            if about.st_size > largest:
                raise ValueError(f"{path} must have at most {largest} bytes, got {about.st_size}")
            return file.read(largest)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read: {error.strerror}; links are not followed"
        ) from None


def check_model(data: bytes, name: str) -> None:
    """Refuse a model that reads other files or uses operators that are not standard.

    Raises:
        ValueError: one sentence, for such a model and for a file that is not ONNX.
    """
    try:
        _walk(memoryview(data), _MODEL, name, 0)
    except IndexError:
        raise ValueError(
            f"{name} must be an ONNX file, got one that is damaged or another"
        ) from None


def _walk(data: memoryview, kind: int, name: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"{name} must nest graphs at most {_DEEPEST} deep")
    children = _CHILDREN[kind]
    for number, wire, value in _fields(data):
        if kind == _TENSOR and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value)):
            raise ValueError(
                f"{name} must hold all its numbers, got a tensor whose data lie in another file"
            )
        if kind == _NODE and number == _DOMAIN and bytes(_part(value)) not in _STANDARD:
            raise ValueError(
                f"{name} must be made of ONNX's own operators, got one of the domain "
                f"{bytes(_part(value))[:40]!r}"
            )
        if wire == _MESSAGE and number in children:
            _walk(_part(value), children[number], name, depth + 1)


def _part(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise IndexError
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field of a message. IndexError where it is damaged."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _MESSAGE:
            size, at = _varint(data, at)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise IndexError
        if size > len(data) - at:
            raise IndexError
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
