"""Atomic, synced writes, reads of regular files only, and directory locks."""

import errno
import fcntl
import glob
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from training.command.errors import UserError

CONFIG, METRICS, PROVENANCE = "config.yaml", "metrics.csv", "provenance.json"
"""Files of a run directory."""
EVALUATION, PARETO = "evaluation.json", "pareto.png"
"""Files of a directory of evaluations."""
MOST_BYTES = 2**26
"""Size limit of a file that is read whole; those that commands write are far smaller."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: a temporary file, synced, then renamed.

    When it returns, a power cut loses neither the contents nor the name. An OSError, which names
    `path`, leaves the previous file. Temporary files of killed writers are removed.
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
        with suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write_json(path: Path, data: Any, *, indent: int | None = 1, allow_nan: bool = True) -> None:
    """`write_atomically` of data as JSON. Without `allow_nan`, ValueError for NaN and infinity."""
    text = json.dumps(data, indent=indent, allow_nan=allow_nan) + "\n"
    write_atomically(path, text.encode())


def led_to(path: Path) -> Path:
    """The target of a link, or the link itself if it is circular; any other path made absolute."""
    return Path(os.path.realpath(path))


def _remove_left_overs(path: Path) -> None:
    """Remove the temporary files of `path` left by processes that ended."""
    with suppress(OSError):
        for found in path.parent.glob(f".{glob.escape(path.name)}.*"):
            process = found.name.removeprefix(f".{path.name}.")
            is_ours = process == str(os.getpid())
            if re.fullmatch("[0-9]+", process) and (is_ours or not Path("/proc", process).exists()):
                found.unlink(missing_ok=True)


def append(file: FileIO, data: bytes) -> None:
    """Write all of `data` into an unbuffered file: a buffer would retry a failed write when it is
    closed. An OSError names the file; a part may then be written."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        error.filename = str(file.name)
        raise


def sync_directory(directory: Path) -> None:
    """Sync the entries of a directory to the disk, if its file system supports it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # the directory may be writable but not readable
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # network file systems
            raise
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise a UserError that names `path` if the block cannot write it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from None


def reason(error: OSError) -> str:
    """The reason for an operating system error in words."""
    return error.strerror or " ".join(str(error).split()) or type(error).__name__


def refusal(error: OSError | MemoryError) -> str:
    """One sentence that describes an operating system error."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory here: {' '.join(str(error).split()) or 'none is left'}"
    if error.filename:
        return f"{error.filename}: {reason(error)}"
    full = error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
    return f"the output, or a file, cannot be written: {reason(error)}" if full else reason(error)


def check_regular(path: str | Path) -> None:
    """OSError, naming it, for anything but a readable regular file: opening a named pipe would wait
    for ever, and a device need not end."""
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
    except ValueError:  # for example a NUL in the name
        raise OSError(errno.EINVAL, "the name is not a valid file name", str(path)) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Lock a directory for writing; raises UserError if another process holds the lock, which the
    system releases when that process ends. A `.lock` that links to another file is refused."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(directory / ".lock", flags, 0o666)
    except OSError as error:
        raise UserError(f"cannot write the run directory {directory}: {reason(error)}") from None
    with os.fdopen(descriptor, "rb", buffering=0):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is writing in {directory}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UserError(f"cannot lock {directory / '.lock'}: {reason(error)}") from None
            print(
                f"warning: the file system of {directory} has no locks, so nothing keeps a second "
                "process from writing there",
                file=sys.stderr,
            )
        yield


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of a file system that does not support locks, such as some network file systems."""


@contextmanager
def made_and_locked(out: Path) -> Iterator[Path]:
    """Create the directory that --out names, if necessary, and lock it. Raises UserError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {reason(error)}") from None
    with lock(out):
        yield out
