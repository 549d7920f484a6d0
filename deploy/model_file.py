"""Validation of an untrusted ONNX file before it is loaded; it does not need NumPy.

ONNX files are protocol buffers. Every field is read as ONNX Runtime's parser reads it, and what
this parser would skip is refused, so that both see the same model. Refused as well: tensors whose
numbers lie in other files, operators beyond the standard ones, types that no policy uses (text,
sparse and complex tensors), and a nesting or size that no exported policy has.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

LARGEST_BYTES = 1 << 30
_DEEPEST, _MOST_FIELDS = 16, 1 << 21
_WIRES = {"int": (0,), "ints": (0, 2), "float": (5,), "floats": (5, 2), "doubles": (1, 2)}
"""Wire types of numbers; texts and messages have type 2."""
_FIELDS = {
    message: {int(n): kind for n, _, kind in (word.partition(":") for word in words.split())}
    for message, words in {
        "model": "1:int 2:text 3:text 4:text 5:int 6:text 7:graph 8:opset 14:entry",
        "opset": "1:text 2:int",
        "entry": "1:text 2:text",
        "graph": "1:node 2:text 5:tensor 10:text 11:port 12:port 13:port 14:scale 16:entry",
        "scale": "1:text 2:entry",
        "node": "1:text 2:text 3:text 4:text 5:attribute 6:text 7:domain 8:text 9:entry",
        "attribute": "1:text 2:float 3:int 4:text 5:tensor 6:graph 7:floats 8:ints 9:text "
        "10:tensor 11:graph 13:text 14:type 15:type 20:int 21:text",
        "tensor": "1:ints 2:dtype 4:floats 5:ints 7:ints 8:text 9:text 10:doubles 11:ints 12:text "
        "13:elsewhere 14:place 16:entry",
        "port": "1:text 2:type 3:text 4:entry",
        "type": "1:array 4:list 6:text 9:list",
        "list": "1:type",
        "array": "1:dtype 2:shape",
        "shape": "1:side",
        "side": "1:int 2:text 3:text",
    }.items()
}
"""Fields of ONNX's messages (onnx.proto) by number, without those that no policy uses."""
_DTYPES = {*range(26)} - {8, 14, 15}
"""ONNX's types of numbers, without text and complex numbers."""
_DTYPE_ATTRIBUTES = {b"to", b"dtype", b"output_dtype", b"output_datatype"}
_TEXT_ATTRIBUTES = {b"value_string", b"value_strings"}
_STANDARD = (b"", b"ai.onnx")
_VIDEOS = (b"\x1aE\xdf\xa3", b"RIFF", b"OggS", b"GIF8", b"\x89PNG", b"\xff\xd8\xff")


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


def check_video(path: Path) -> None:
    """Refuse a path that is not a video by its first bytes: a pipe, which would block for ever, or
    a list of other files, which a reader of videos would open. A missing file passes.

    Raises:
        ValueError: one sentence, for such a path.
    """
    try:
        if not path.exists():
            return
        start = b""
        if path.is_file():
            with path.open("rb") as file:
                start = file.read(12)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not (start.startswith(_VIDEOS) or start[4:8] == b"ftyp"):
        raise ValueError(
            f"{path} must be a camera, its address, or a video file (.mp4, .mov, .webm, .mkv, "
            ".avi), got another kind of file"
        )


def check_model(data: bytes, name: str) -> None:
    """Refuse a model that reads other files, uses operators that are not standard or types that no
    policy has, or that another parser may read otherwise.

    Raises:
        ValueError: one sentence, for such a model and for a file that is not ONNX.
    """
    try:
        if data[4:8] == b"ORTM":  # ONNX Runtime's own format, which it tells by these bytes
            raise IndexError
        _walk(memoryview(data), "model", name, 0, iter(range(_MOST_FIELDS)))
    except IndexError:
        raise ValueError(
            f"{name} must be an ONNX file, got one that is damaged or another"
        ) from None


def _walk(data: memoryview, message: str, name: str, depth: int, left: Iterator[int]) -> None:
    """Check the fields of a message; `left` counts those that the file may still have."""
    if depth > _DEEPEST:
        raise ValueError(f"{name} must nest graphs at most {_DEEPEST} deep")
    words, numbers = set[bytes](), set[int]()  # names and whole numbers of an attribute
    for number, wire, value in _fields(data):
        if next(left, None) is None:
            raise ValueError(f"{name} must have at most {_MOST_FIELDS} fields")
        kind = _FIELDS[message].get(number)
        if kind is None:
            raise ValueError(
                f"{name} must have the fields of policies alone, got field {number} of a {message}"
            )
        if kind == "elsewhere" or (kind == "place" and value != 0):
            raise ValueError(
                f"{name} must hold all its numbers, got a tensor whose data lie in another file"
            )
        if wire not in _WIRES.get(kind, (0,) if kind in ("dtype", "place") else (2,)):
            raise IndexError
        if kind == "dtype" and value not in _DTYPES:
            raise ValueError(f"{name} must be made of numbers, got tensors of ONNX's type {value}")
        if isinstance(value, int):
            if (message, number) == ("attribute", 3):
                numbers.add(value)
            continue
        if kind == "domain" and bytes(value) not in _STANDARD:
            raise ValueError(
                f"{name} must be made of ONNX's own operators, got one of the domain "
                f"{bytes(value)[:40]!r}"
            )
        if (message, number) == ("attribute", 1):
            words.add(bytes(value[:40]))
        if kind in _FIELDS:
            _walk(value, kind, name, depth + 1, left)
    if words & _TEXT_ATTRIBUTES or (words & _DTYPE_ATTRIBUTES and numbers - _DTYPES):
        raise ValueError(f"{name} must compute with numbers alone, got an operator that does not")


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field of a message. IndexError where it is damaged."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at, 5)
        if key >> 32:  # whose upper bits other parsers drop
            raise IndexError
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at, 10)
            yield number, wire, value
            continue
        if wire == 2:
            size, at = _varint(data, at, 5)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise IndexError
        if size > len(data) - at:
            raise IndexError
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int, most: int) -> tuple[int, int]:
    """Read a number of limited size; return it and the offset of the next one."""
    value = 0
    for shift in range(0, 7 * most, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
