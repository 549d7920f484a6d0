"""Files of a tar archive, read in memory; nothing is written to the disk."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable

from experiments.data.xz import unxz
from training.io.config import UserError

__all__ = ["read_members"]

_MOST_BYTES = 2**27
"""Of an archive, unpacked; and of the memory that unpacking uses beside."""
_XZ = b"\xfd7zXZ\0"


def read_members(
    name: str, content: bytes, wanted: Callable[[str], str | None]
) -> dict[str, bytes]:
    """Contents of the wanted files of an archive, compressed with xz, gzip or not at all.

    Args:
        name: name of the archive for error messages.
        content: bytes of the archive.
        wanted: maps a member's name to its new name; None: omitted. Links are always omitted.

    Raises UserError if it is damaged or exceeds the size limit.
    """
    found: dict[str, bytes] = {}
    try:
        data = _unpacked(content)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{name} holds more than {_MOST_BYTES} bytes")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            place = -1
            for member in archive:
                if member.offset <= place:
                    raise tarfile.ReadError("a member leads back to one before it")
                place = member.offset
                own = wanted(member.name)
                file = archive.extractfile(member) if _is_file(member) else None
                if own is not None and file is not None:
                    found[own] = file.read()
    except (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError,
            OverflowError, RecursionError) as error:  # fmt: skip
        raise UserError(f"{name} cannot be read: {error}") from None
    return found


def _is_file(member: tarfile.TarInfo) -> bool:
    """Whether it is a regular file, whose bytes all stand in the archive."""
    return member.isreg() and not member.issparse()


def _unpacked(content: bytes) -> bytes:
    """Read at most one byte more than allowed."""
    if content.startswith(_XZ):
        return unxz(content, _MOST_BYTES, _MOST_BYTES)
    if content.startswith(b"\x1f\x8b"):
        with gzip.open(io.BytesIO(content)) as file:
            return file.read(_MOST_BYTES + 1)
    return content
