"""IDX files, the format of MNIST and its kin: unsigned bytes after a header, gzipped or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.io.config import UserError

__all__ = ["read_idx"]

_MOST_BYTES = 2**27


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of a file, with the shape given in its header.

    Raises UserError if the file is damaged, larger than any such set, or of other numbers.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path} holds more than {_MOST_BYTES} bytes")
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise UserError(
            f"{path} is no IDX file of unsigned bytes: it begins with {data[:4]!r}, "
            f"of {len(data)} bytes"
        )
    dims = data[3]
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dims, 4)) if dims else ()
    rest = len(data) - 4 - 4 * dims
    if not shape or int(np.prod(shape, dtype=object)) != rest:
        raise UserError(f"{path} is damaged: its header says {shape}, and {rest} bytes follow")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)
