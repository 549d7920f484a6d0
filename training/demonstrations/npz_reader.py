"""Reads a folder of episodes as npz files, whose arrays have a row a step.

Array names are the keys. All files have the same ones, and `action` or `actions` among them; an
array with a row more than the actions holds the observation after the last step, which is not used.
A number `rate_hz` or `fps` is the rate. Files in the folders `train` and `valid` are a split. Numpy
reads no pickles here.
"""

import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from training.command.errors import UserError
from training.command.files import check_regular
from training.demonstrations.dataset import (
    ALL,
    FileSource,
    inside,
    reading,
)
from training.demonstrations.format import ArraySpec

_ACTIONS, _RATES = ("action", "actions"), ("rate_hz", "fps")
_MOST_FILES, _MOST_ARRAYS = 10**6, 1000
_HIGHEST_RATIO = 1032  # of deflate; a higher one is a wrong length


class NpzSource(FileSource):
    """The `training.demonstrations.dataset.Source` of such a folder. Raises UserError."""

    kind = "a folder of npz files"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files, self._masks = self._listed()
        first, self.rate_hz = self._headers(self._files[0])
        self._action = next((name for name in _ACTIONS if name in first), "")
        if not self._action:
            raise UserError(f"{self._files[0]} lacks action, its arrays are {', '.join(first)}")
        self.specs = {name: spec for name, (_, spec) in first.items()}
        self.lengths = np.array([self._length(file) for file in self._files], np.int64)
        self._check_lengths()

    def _listed(self) -> tuple[list[Path], dict[str, list[int]]]:
        groups = {name: sorted((self.path / name).glob("*.npz")) for name in ("train", "valid")}
        files = [*sorted(self.path.glob("*.npz")), *groups["train"], *groups["valid"]]
        if not files or len(files) > _MOST_FILES:
            raise UserError(
                f"{self.path} has {len(files)} files *.npz in it, in train/ and in valid/, where 1 "
                f"to {_MOST_FILES} are needed"
            )
        if any(groups.values()) and len(files) > sum(map(len, groups.values())):
            raise UserError(
                f"{self.path} has files *.npz beside train/ and valid/: move them there"
            )
        order = {file: i for i, file in enumerate(files)}
        return files, {name: [order[file] for file in found] for name, found in groups.items()}

    def _headers(self, path: Path) -> tuple[dict[str, tuple[int, ArraySpec]], float | None]:
        """Rows and specification of each array of a file, and its rate."""
        with reading(path):
            check_regular(inside(self.path, os.path.relpath(path, self.path)))
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                if len(names) > _MOST_ARRAYS:
                    raise ValueError(
                        f"it holds {len(names)} arrays, at most {_MOST_ARRAYS} are read"
                    )
                found, rate = {}, None
                for name in names:
                    key = name.removesuffix(".npy")
                    with archive.open(name) as file:
                        shape, dtype = _header(file, key)
                        if shape:
                            spec = ArraySpec(tuple(map(int, shape[1:])), dtype.name)
                            found[key] = shape[0], spec
                    if not shape and key in _RATES:
                        rate = float(_array(archive, name))
                if rate is not None and not 0 < rate < 1e6:
                    raise ValueError(f"its rate is {rate}, where steps a second are needed")
                return found, rate

    def _length(self, path: Path) -> int:
        headers, rate = self._headers(path)
        there = {name: spec for name, (_, spec) in headers.items()}
        for name in sorted(there.keys() | self.specs.keys()):
            if there.get(name) != self.specs.get(name):
                raise UserError(
                    f"{path}: {name} is {there.get(name, 'absent')}, where {self._files[0]} has "
                    f"{self.specs.get(name, 'none')}"
                )
        if rate != self.rate_hz:
            raise UserError(
                f"{path} has the rate {rate}, where {self._files[0]} has {self.rate_hz}"
            )
        steps = headers[self._action][0]
        for name, (rows, _) in headers.items():
            if rows not in (steps, steps + 1):
                raise UserError(f"{path}: {name} has {rows} rows, where {self._action} has {steps}")
        return steps

    def read(self, episode: int, key: str, steps: slice = ALL) -> NDArray[Any]:
        """See `Source`."""
        path = self._files[episode]
        with reading(path), zipfile.ZipFile(path) as archive:
            values = _array(archive, f"{key}.npy")
            spec = ArraySpec(values.shape[1:], values.dtype.name)
            if spec != self.specs[key] or len(values) < self.lengths[episode]:
                raise ValueError(f"{key} is another array than when it was opened")
            return values[: self.lengths[episode]][steps]


def _header(file: IO[bytes], key: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.kind not in "biuf":
        raise ValueError(f"{key} is of {dtype}, where numbers are needed")
    return shape, dtype


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array, after its size was compared with that of the file."""
    entry = archive.getinfo(name)
    with archive.open(entry) as file:
        shape, dtype = _header(file, name)
        nbytes = int(np.prod([int(size) for size in shape], dtype=object)) * dtype.itemsize
        if nbytes > entry.file_size or entry.file_size > _HIGHEST_RATIO * entry.compress_size + 64:
            raise ValueError(f"{name} is shorter than the array {shape} of {dtype} that it names")
    with archive.open(entry) as file:
        found: NDArray[Any] = npy.read_array(file, allow_pickle=False)
        return found
