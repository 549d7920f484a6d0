"""Files of the data sets: found in a local folder, the cache or at their public URL, and unpacked.

Without `folder` the environment variable FOVEATE_DATA names one. The cache is
$XDG_CACHE_HOME/foveate, by default ~/.cache/foveate. A download is checked against the SHA-256 of
its contents before it is kept; files of a local folder are not checked. Reading a file takes
bounded memory for any content and writes nothing."""

import gzip
import hashlib
import io
import lzma
import os
import tarfile
import urllib.request
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from training.command.files import write_atomically
from training.io.config import UserError

_TIMEOUT_S = 30.0
_MOST_DOWNLOADED = 2**28
_MOST_IN_ARCHIVE = 2**27
"""Bytes of an archive, unpacked; and of the memory that unpacking uses besides."""
_MOST_MEMORY = 2**28
"""Bytes of memory that unpacking a single file may use."""
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set and its public URL."""

    url: str
    """Its name alone where it has no public URL: a local folder must have it."""
    sha256: str | None = None
    """SHA-256 of its contents, unpacked where it ends in .gz, in hexadecimal digits; None: not
    known."""
    also: tuple[str, ...] = ()
    """Alternative names of the file in a local folder, unpacked or in another archive format."""
    places: tuple[str, ...] = ()
    """Folders of this machine where packages of its distribution put it."""
    digest: Callable[[bytes], str] | None = None
    """Computes from a downloaded file what `sha256` is compared with; None: as described there."""

    @property
    def file(self) -> str:
        """The file name in the URL."""
        return self.url.rsplit("/", 1)[-1]


def find(name: str, remote: RemoteFile, folder: str | Path | None = None) -> Path:
    """The path of a file of the data set `name`: `folder`/`name`/FILE or `folder`/FILE if a folder
    is given; otherwise from a package, the cache, or a download.

    Raises UserError if it is not found.
    """
    folders, files = _local_folders(name, folder), (remote.file, *remote.also)
    for path in (Path(place) / file for place in folders or remote.places for file in files):
        if path.is_file():
            return path
    if not folders:
        return _download(name, remote)
    places = " or ".join(map(str, folders))
    raise UserError(f"{name} must have {' or '.join(files)} in {places}, and it is not there")


def find_folder(name: str, inner: str, folder: str | Path | None = None) -> Path | None:
    """`folder`/`name`/`inner` or `folder`/`inner`, the unpacked files of the data set `name`; None
    if there is no such folder.
    """
    paths = (place / inner for place in _local_folders(name, folder))
    return next((path for path in paths if path.is_dir()), None)


def _local_folders(name: str, folder: str | Path | None) -> list[Path]:
    folder = folder if folder is not None else os.environ.get("FOVEATE_DATA")
    return [] if folder is None else [Path(folder) / name, Path(folder)]


def _download(name: str, remote: RemoteFile) -> Path:
    """A file in the cache, downloaded if necessary. Raises UserError if that fails or its checksum
    differs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(root) / "foveate" / name / remote.file
    if path.is_file():
        return path
    if "://" not in remote.url:
        raise UserError(
            f"{remote.file} of {name} cannot be fetched: name the folder that has it by --data or "
            "FOVEATE_DATA"
        )
    try:
        with urllib.request.urlopen(remote.url, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(_MOST_DOWNLOADED + 1)
    except (OSError, HTTPException) as error:
        raise UserError(
            f"{remote.file} of {name} cannot be fetched from {remote.url} ({error}): fetch it "
            "elsewhere and name its folder by --data or FOVEATE_DATA"
        ) from None
    digest = remote.digest or partial(_sha256, packed=remote.file.endswith(".gz"))
    if remote.sha256 is not None and (found := digest(content)) != remote.sha256:
        raise UserError(f"{remote.url} must have SHA-256 {remote.sha256}, got {found}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def _sha256(content: bytes, packed: bool) -> str:
    """SHA-256 of the contents, or of the file itself if it cannot be decompressed."""
    with suppress(*_DAMAGED):
        content = _unpacked(content, ".gz" if packed else "", _MOST_DOWNLOADED, _MOST_MEMORY)
    return hashlib.sha256(content).hexdigest()


def read_unpacked(path: Path, most_bytes: int) -> bytes:
    """The contents of a file, which is unpacked where its name ends in .gz or .xz.

    Raises UserError if it is damaged or holds more than `most_bytes`, packed or unpacked.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) <= most_bytes:
            data = _unpacked(data, path.suffix, most_bytes, _MOST_MEMORY)
    except _DAMAGED as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if len(data) > most_bytes:
        raise UserError(f"{path} must hold at most {most_bytes} bytes, and holds more")
    return data


def read_text(path: Path, most_bytes: int) -> str:
    """The text of a file in UTF-8; see `read_unpacked`."""
    try:
        return read_unpacked(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read as text: {error}") from None


def read_archive(
    name: str, content: bytes, wanted: Callable[[str], str | None]
) -> dict[str, bytes]:
    """Contents of the wanted files of a tar archive, compressed with xz, gzip or not at all.

    Args:
        name: name of the archive for error messages.
        content: bytes of the archive.
        wanted: maps a member's name to its new name; None: omitted. Links are always omitted.

    Raises UserError if it is damaged or exceeds the size limit.
    """
    found: dict[str, bytes] = {}
    form = (
        ".xz" if content.startswith(b"\xfd7zXZ\0") else ".gz" if content[:2] == b"\x1f\x8b" else ""
    )
    try:
        data = _unpacked(content, form, _MOST_IN_ARCHIVE, _MOST_IN_ARCHIVE)
        if len(data) > _MOST_IN_ARCHIVE:
            raise UserError(f"{name} holds more than {_MOST_IN_ARCHIVE} bytes")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            place = -1
            for member in archive:
                if member.offset <= place:
                    raise tarfile.ReadError("a member leads back to one before it")
                place, own = member.offset, wanted(member.name)
                regular = member.isreg() and not member.issparse()
                file = archive.extractfile(member) if regular else None
                if own is not None and file is not None:
                    found[own] = file.read()
    except (tarfile.TarError, *_DAMAGED, ValueError, OverflowError, RecursionError) as error:
        raise UserError(f"{name} cannot be read: {error}") from None
    return found


def _unpacked(packed: bytes, suffix: str, most_bytes: int, most_memory: int) -> bytes:
    """The unpacked bytes, at most one more than allowed; `_DAMAGED` where they are damaged."""
    if suffix == ".gz":
        with gzip.open(io.BytesIO(packed)) as file:
            return file.read(most_bytes + 1)
    if suffix != ".xz":
        return packed
    unpacker = lzma.LZMADecompressor(memlimit=most_memory)
    data = unpacker.decompress(packed, most_bytes + 1)
    if not unpacker.eof and len(data) <= most_bytes:
        raise EOFError("it ends too early")
    return data
