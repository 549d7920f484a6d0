"""How files are written and held: whole or not at all, on the disk when a call returns, by one
process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from training.config import UserError

__all__ = ["lock", "sync_directory", "write_atomically"]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: a temporary file, synced, then renamed.

    When it returns, a power cut loses neither the contents nor the name. An OSError leaves what
    was there before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # what failed first is what counts
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory onto the disk, as far as its file system can."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # it may be written but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of some network file systems
            raise
    finally:
        os.close(descriptor)


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold a directory that is written in; UserError when another process does.

    The system releases the lock when the process ends, however it ends.
    """
    try:
        file = (directory / ".lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write the run directory {directory}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is training in {directory}") from None
        yield
