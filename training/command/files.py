"""How files are written, read and held: whole or not at all, on the disk when a call returns, only
regular ones, by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from training.command.errors import UserError

__all__ = [
    "CONFIG",
    "METRICS",
    "PROVENANCE",
    "append",
    "check_regular",
    "led_to",
    "lock",
    "made_and_locked",
    "read_bytes",
    "reason",
    "refusal",
    "sync_directory",
    "write_atomically",
    "write_json",
    "writing",
]

CONFIG, METRICS, PROVENANCE = "config.yaml", "metrics.csv", "provenance.json"
"""Files of a run directory."""
MOST_BYTES = 2**26
"""Of a file that is read whole: far more than any that a command writes."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: a temporary file, synced, then renamed.

    When it returns, a power cut loses neither the contents nor the name. An OSError, which names
    `path`, leaves what was there before. What killed writers of it left beside it is removed.
    """
    _remove_left_overs(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException as error:
        with suppress(OSError):  # what failed first is what counts
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write_json(path: Path, data: Any, *, indent: int | None = 1, allow_nan: bool = True) -> None:
    """`write_atomically` of data as JSON. OSError; ValueError for numbers that JSON lacks, unless
    `allow_nan`."""
    text = json.dumps(data, indent=indent, allow_nan=allow_nan) + "\n"
    write_atomically(path, text.encode())


def led_to(path: Path) -> Path:
    """What a link leads to, itself where it leads in a circle; another path, made absolute."""
    return Path(os.path.realpath(path))


def _remove_left_overs(path: Path) -> None:
    """Remove temporary files of `path` that dead processes left."""
    with suppress(OSError):
        for found in path.parent.glob(f".{glob.escape(path.name)}.*"):
            process = found.name.removeprefix(f".{path.name}.")
            if re.fullmatch("[0-9]+", process) and not _lives(int(process)):
                found.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    """Whether another process of this number is there."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # another user's
    return True


def append(file: FileIO, data: bytes) -> None:
    """Write all of `data` into an unbuffered file: a buffer would try again what failed, when it is
    closed. An OSError names the file; a part may then be written."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        error.filename = str(file.name)
        raise


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
def writing(path: Path) -> Iterator[None]:
    """UserError that names `path` when the block cannot write it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from None


def reason(error: OSError) -> str:
    """Why the operating system refused something, in words."""
    return error.strerror or " ".join(str(error).split()) or type(error).__name__


def refusal(error: OSError | MemoryError) -> str:
    """One sentence about what the operating system refused."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory here: {' '.join(str(error).split()) or 'none is left'}"
    if error.filename:
        return f"{error.filename}: {reason(error)}"
    full = error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
    return f"the output, or a file, cannot be written: {reason(error)}" if full else reason(error)


def check_regular(path: str | Path) -> None:
    """OSError, naming it, for anything but a regular file that can be read: opening a named pipe
    would wait for ever, and a device need not end."""
    os.close(_open_regular(path))


def read_bytes(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """A regular file's contents. OSError, naming it, for anything else and for more than `most`."""
    with os.fdopen(_open_regular(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def _open_regular(path: str | Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # a NUL in it, say
        raise OSError(errno.EINVAL, "no file can have such a name", str(path)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold a directory that is written in; UserError when another process does.

    The system releases the lock when the process ends, however it ends. What `.lock` is when it is
    found there, a link to another file say, is left as it is.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(directory / ".lock", flags, 0o666)
    except OSError as error:
        raise UserError(f"cannot write the run directory {directory}: {reason(error)}") from None
    with os.fdopen(descriptor, "rb", buffering=0):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is at work in {directory}") from None
        except OSError as error:  # a file system without locks
            raise UserError(f"cannot lock {directory / '.lock'}: {reason(error)}") from None
        yield


@contextmanager
def made_and_locked(out: Path) -> Iterator[Path]:
    """Hold the directory that --out names, which is made where there is none, see `lock`.

    UserError when it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {reason(error)}") from None
    with lock(out):
        yield out
