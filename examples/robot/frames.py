"""Arrays over a socket: a short header in JSON, then raw bytes; nothing is ever unpickled.

A frame is four bytes, the length of its header; the header, which names type and shape of each
array; and the arrays' bytes, one after the other. Headers and frames of other lengths are refused.
"""

import json
import math
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Frame", "receive", "send"]

LONGEST_HEADER, LARGEST_FRAME = 1 << 16, 1 << 24
TYPES = {"uint8", "int64", "float32", "float64"}
Frame = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Plain values, and arrays by name."""


def send(to: socket.socket, message: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Send plain values and arrays."""
    parts = {name: [array.dtype.name, *array.shape] for name, array in arrays.items()}
    header = json.dumps({"message": dict(message), "arrays": parts}).encode()
    body = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    to.sendall(len(header).to_bytes(4, "big") + header + body)


def receive(whence: socket.socket) -> Frame:
    """The next frame.

    Raises:
        ConnectionError: the other side is gone.
        ValueError: for what is no frame.
    """
    length = int.from_bytes(_exactly(whence, 4), "big")
    if not 0 < length <= LONGEST_HEADER:
        raise ValueError(f"a header must have 1 to {LONGEST_HEADER} bytes, got {length}")
    header = json.loads(_exactly(whence, length))
    arrays = {}
    for name, (kind, *shape) in header["arrays"].items():
        sides = [side for side in shape if isinstance(side, int) and 0 <= side <= LARGEST_FRAME]
        if kind not in TYPES or len(sides) != len(shape):
            raise ValueError(f"{name} must be an array of {', '.join(sorted(TYPES))}, got {kind}")
        size = math.prod(shape) * np.dtype(kind).itemsize
        if size > LARGEST_FRAME:
            raise ValueError(f"{name} must have at most {LARGEST_FRAME} bytes, got {size}")
        arrays[name] = np.frombuffer(_exactly(whence, size), kind).reshape(shape)
    return header["message"], arrays


def _exactly(whence: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = whence.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("the other side is gone")
        parts += part
    return bytes(parts)
