"""Finds the files of a data set in a local folder, in the cache, or at their public URL.

Without `folder` the environment variable FOVEATE_DATA names one. The cache is
$XDG_CACHE_HOME/foveate, by default ~/.cache/foveate. A download is checked against the SHA-256 of
its contents before it is kept; files of a local folder are taken as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from training.command.files import write_atomically
from training.io.config import UserError

__all__ = ["Home", "fetched", "find", "find_folder"]

_TIMEOUT_S = 30.0
_MOST_BYTES = 2**28
"""Of a download."""


@dataclass(frozen=True)
class Home:
    """A file at its public URL."""

    url: str
    """Its name alone where it has no public home: then a local folder must have it."""
    sha256: str | None = None
    """Of its contents, unpacked where it ends in .gz, in hexadecimal digits; None: not known."""
    also: tuple[str, ...] = ()
    """Other names under which a local folder may have it, unpacked or packed otherwise."""
    places: tuple[str, ...] = ()
    """Folders of this machine where packages of its distribution put it."""
    digest: Callable[[bytes], str] | None = None
    """Gives what `sha256` is compared with, of a downloaded file, where that is not the SHA-256 of
    its contents."""

    @property
    def file(self) -> str:
        """The file name in the URL."""
        return self.url.rsplit("/", 1)[-1]


def find(name: str, home: Home, folder: str | Path | None = None) -> Path:
    """The path of a file of the data set `name`: `folder`/`name`/FILE or `folder`/FILE if a folder
    is given; otherwise from a package, the cache, or a download.

    Raises UserError if it is not found.
    """
    folder = _local(folder)
    files = (home.file, *home.also)
    if folder is not None:
        places = [place / file for place in (Path(folder) / name, Path(folder)) for file in files]
        return _first(places) or _missing(name, places)
    return _first([Path(p) / file for p in home.places for file in files]) or fetched(name, home)


def find_folder(name: str, inner: str, folder: str | Path | None = None) -> Path | None:
    """`folder`/`name`/`inner` or `folder`/`inner`, the unpacked files of the data set `name`; None
    if there is no such folder.
    """
    folder = _local(folder)
    places = [] if folder is None else [Path(folder) / name / inner, Path(folder) / inner]
    return next((path for path in places if path.is_dir()), None)


def _local(folder: str | Path | None) -> str | Path | None:
    return folder if folder is not None else os.environ.get("FOVEATE_DATA")


def _first(places: Sequence[Path]) -> Path | None:
    return next((path for path in places if path.is_file()), None)


def _missing(name: str, places: Sequence[Path]) -> Path:
    folders = " or ".join(map(str, dict.fromkeys(path.parent for path in places)))
    files = " or ".join(dict.fromkeys(path.name for path in places))
    raise UserError(f"{name} must have {files} in {folders}, and it is not there")


def fetched(name: str, home: Home) -> Path:
    """A file of the data set `name` in the cache, downloaded if necessary.

    Raises UserError if the download fails or its checksum differs.
    """
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(root) / "foveate" / name / home.file
    if path.is_file():
        return path
    if "://" not in home.url:
        raise UserError(
            f"{home.file} of {name} cannot be fetched: name the folder that has it by --data or "
            "FOVEATE_DATA"
        )
    try:
        with urllib.request.urlopen(home.url, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(_MOST_BYTES + 1)
    except (OSError, HTTPException) as error:
        raise UserError(
            f"{home.file} of {name} cannot be fetched from {home.url} ({error}): fetch it "
            "elsewhere and name its folder by --data or FOVEATE_DATA"
        ) from None
    digest = home.digest or partial(_sha256, packed=home.file.endswith(".gz"))
    if home.sha256 is not None and (found := digest(content)) != home.sha256:
        raise UserError(f"{home.url} must have SHA-256 {home.sha256}, got {found}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def _sha256(content: bytes, packed: bool) -> str:
    """SHA-256 of the contents, or of the file itself if it cannot be decompressed."""
    digest = hashlib.sha256()
    try:
        with gzip.open(io.BytesIO(content)) if packed else io.BytesIO(content) as file:
            while part := file.read(2**20):
                digest.update(part)
    except (OSError, EOFError, zlib.error):
        return hashlib.sha256(content).hexdigest()
    return digest.hexdigest()
