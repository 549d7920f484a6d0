"""xz decompression with limits on size and memory."""

from __future__ import annotations

import lzma

__all__ = ["unxz"]


def unxz(packed: bytes, most_bytes: int, most_memory: int) -> bytes:
    """The decompressed contents, truncated to `most_bytes` + 1.

    Raises EOFError if they end too early, LZMAError where they are damaged or need more memory.
    """
    unpacker = lzma.LZMADecompressor(memlimit=most_memory)
    data = unpacker.decompress(packed, most_bytes + 1)
    if not unpacker.eof and len(data) <= most_bytes:
        raise EOFError("it ends too early")
    return data
