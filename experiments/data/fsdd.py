"""Free Spoken Digit Dataset (Jackson and others 2016): 3,000 recordings of digits, six speakers.

CC BY-SA 4.0. Mono, 16 bit, 8 kHz; {digit}_{speaker}_{index}.wav, indices 0 to 4 are the test.
"""

import hashlib
import io
import re
import struct
import wave
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.data.files import RemoteFile, find, find_folder, read_archive
from training.io.config import UserError

NAME = "fsdd"
RATE_HZ = 8000
_MOST_BYTES = 2**26
"""Size limit of a packed archive, or of all recordings in a folder."""
_FILE = re.compile(r"([0-9])_([a-z]{1,40})_([0-9]{1,4})\.wav")
_COMMIT = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"


class Recording(NamedTuple):
    """One recording of a digit."""

    digit: int
    speaker: str
    take: int
    """Its index among those of this digit and speaker."""
    samples: NDArray[np.int16]
    """(samples,), at 8 kHz."""


@lru_cache(maxsize=2)
def load(folder: str | Path | None = None) -> tuple[Recording, ...]:
    """All recordings, by name.

    A folder has the archive or, unpacked, `recordings/`. Raises UserError if they are not found,
    or damaged.
    """
    unpacked = find_folder(NAME, "recordings", folder)
    source = unpacked or find(NAME, ARCHIVE, folder)
    try:
        files = _in_archive(source) if unpacked is None else _in_folder(unpacked)
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error}") from None
    if not files:
        raise UserError(
            f"{source} must have recordings such as recordings/7_theo_3.wav, and none is there"
        )
    return tuple(_recording(name, files[name]) for name in sorted(files))


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of names and contents, sorted by name: hexadecimal digits."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _wanted(name: str) -> str | None:
    """The base name of an archive member if it is a recording."""
    folder, _, file = name.rpartition("/")
    here = folder.rpartition("/")[2] == "recordings"
    return file if here and _FILE.fullmatch(file) else None


def _in_archive(path: Path) -> dict[str, bytes]:
    if path.stat().st_size > _MOST_BYTES:
        raise UserError(f"{path} holds more than {_MOST_BYTES} bytes")
    return read_archive(str(path), path.read_bytes(), _wanted)


def _in_folder(folder: Path) -> dict[str, bytes]:
    paths = [p for p in folder.iterdir() if _FILE.fullmatch(p.name) and p.is_file()]
    if sum(path.stat().st_size for path in paths) > _MOST_BYTES:
        raise UserError(f"the recordings in {folder} hold more than {_MOST_BYTES} bytes")
    return {path.name: path.read_bytes() for path in paths}


def _recording(name: str, content: bytes) -> Recording:
    try:
        with wave.open(io.BytesIO(content)) as file:
            form = (file.getnchannels(), 8 * file.getsampwidth(), file.getframerate())
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, struct.error, ValueError, RuntimeError) as error:
        reason = str(error) or "it ends too early"
        raise UserError(f"{name} of {NAME} cannot be read: {reason}") from None
    if form != (1, 16, RATE_HZ):
        raise UserError(
            f"{name} of {NAME} must have 1 channel, 16 bit and {RATE_HZ} Hz, got {form[0]}, "
            f"{form[1]} and {form[2]}"
        )
    samples = np.frombuffer(data, "<i2", len(data) // 2).astype(np.int16)
    if not samples.any():
        raise UserError(f"{name} of {NAME} must hold sound, got {len(samples)} samples of silence")
    match = _FILE.fullmatch(name)
    assert match is not None
    return Recording(int(match[1]), match[2], int(match[3]), samples)


ARCHIVE: RemoteFile = RemoteFile(
    f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{_COMMIT}.tar.gz",
    "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959",
    ("recordings.tar.xz", "recordings.tar.gz"),
    digest=lambda content: digest(read_archive(ARCHIVE.url, content, _wanted)),
)
"""The archive is repacked at times, so the recordings in it are checked, not its own bytes."""
