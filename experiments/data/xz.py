"""Unpacking what xz packed, within bounds of bytes and memory."""

from __future__ import annotations

import lzma

__all__ = ["unxz"]


def unxz(packed: bytes, most_bytes: int, most_memory: int) -> bytes:
    """The contents, of too many `most_bytes` + 1 alone.

    Raises EOFError if they end too early, LZMAError where they are damaged or need more memory.
    """
    unpacker = lzma.LZMADecompressor(memlimit=most_memory)
    data = unpacker.decompress(packed, most_bytes + 1)
    if not unpacker.eof and len(data) <= most_bytes:
        raise EOFError("it ends too early")
    return data
