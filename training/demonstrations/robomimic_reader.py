"""Reads a file of robomimic's (https://robomimic.github.io/docs/datasets/overview.html).

    data/demo_0: obs/<key> (steps, ...), actions (steps, k)      data: env_args, as JSON
    mask/train, mask/valid: names of demonstrations

Nothing outside the file is read: neither links nor external or virtual arrays.
"""

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.command.errors import UserError
from training.command.files import check_regular
from training.demonstrations.dataset import ALL, FileSource, reading
from training.demonstrations.format import FORMAT, ArraySpec
from training.demonstrations.reader import group_at, names_in, text_of
from training.io.state_files import plain_json

_ACTIONS = "actions"
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32,
            h5py.h5z.FILTER_LZF}  # fmt: skip
_HIGHEST_RATIO = 1032  # of deflate, and more than of LZF
_MOST_CHUNK_BYTES = 2**30
_MOST_EPISODES = 10**6


def is_robomimic(path: Path) -> bool:
    """Whether a file is HDF5, and not one of training.demos."""
    try:
        check_regular(path)
        if not h5py.is_hdf5(path):
            return False
        with h5py.File(path, "r") as file:
            return text_of(file.attrs, "format") != FORMAT
    except (OSError, RuntimeError, ValueError, LookupError):
        return False


class RobomimicSource(FileSource):
    """The `training.demonstrations.dataset.Source` of such a file. Raises UserError."""

    kind = "robomimic's HDF5"

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            check_regular(path)
            with h5py.File(path, "r") as file:
                data = group_at(file, "data")
                self._names = sorted(data, key=_order)
                if not 0 < len(self._names) <= _MOST_EPISODES:
                    raise ValueError(f"data holds {len(self._names)} demonstrations")
                self.rate_hz = _rate(data)
                self.specs, _ = _arrays(data, self._names[0])
                self.lengths = np.array([self._length(data, n) for n in self._names], np.int64)
                self._masks = {name: self._mask(file, name) for name in ("train", "valid")}
        self._check_lengths()

    def _length(self, data: h5py.Group, name: str) -> int:
        specs, steps = _arrays(data, name)
        for key in sorted(specs.keys() | self.specs.keys()):
            if specs.get(key) != self.specs.get(key):
                raise ValueError(
                    f"{key} of {name} is {specs.get(key, 'absent')}, where {self._names[0]} has "
                    f"{self.specs.get(key, 'none')}"
                )
        return steps

    def _mask(self, file: h5py.File, name: str) -> list[int]:
        if "mask" not in file or name not in group_at(file, "mask"):
            return []
        order = {name: i for i, name in enumerate(self._names)}
        chosen = names_in(group_at(file, f"mask/{name}"), len(self._names))
        absent = [one for one in chosen if one not in order]
        if absent:
            raise ValueError(f"mask/{name} names {absent[0]}, which data lacks")
        return [order[one] for one in chosen]

    def read(self, episode: int, key: str, steps: slice = ALL) -> NDArray[Any]:
        """See `Source`."""
        with reading(self.path), h5py.File(self.path, "r") as file:
            place = _ACTIONS if key == _ACTIONS else f"obs/{key}"
            array = group_at(file, f"data/{self._names[episode]}/{place}")
            if _checked(array, key) != self.specs[key] or len(array) != self.lengths[episode]:
                raise ValueError(f"{key} is another array than when it was opened")
            values: NDArray[Any] = array[steps]
            return values


def _order(name: str) -> tuple[int, str]:
    match = re.fullmatch(r"demo_(\d{1,18})", name)
    return (int(match[1]) if match else -1), name


def _rate(data: h5py.Group) -> float | None:
    """The simulator's rate of control, if env_args hold it."""
    text = text_of(data.attrs, "env_args")
    arguments = plain_json(text) if text else {}
    settings = arguments.get("env_kwargs") if isinstance(arguments, dict) else None
    rate = settings.get("control_freq") if isinstance(settings, dict) else None
    return float(rate) if isinstance(rate, int | float) and 0 < rate < 1e6 else None


def _arrays(data: h5py.Group, name: str) -> tuple[dict[str, ArraySpec], int]:
    """The arrays of a demonstration, and its number of steps."""
    group = group_at(data, name)
    actions = group_at(group, _ACTIONS)
    specs, steps = {_ACTIONS: _checked(actions, _ACTIONS)}, len(actions)
    observed = group_at(group, "obs") if "obs" in group else {}
    if not len(observed):
        raise UserError(
            f"{data.file.filename}: {name} has no observations (obs): robomimic's "
            "dataset_states_to_obs.py makes them from states"
        )
    for key in observed:
        array = group_at(observed, key)
        if key != _ACTIONS:
            specs[key] = _checked(array, key)
            if len(array) != steps:
                raise ValueError(
                    f"{key} of {name} has {len(array)} rows, where {_ACTIONS} has {steps}"
                )
    return specs, steps


def _checked(array: Any, name: str) -> ArraySpec:
    """The specification of an array of numbers in this file itself, as long as it says."""
    if not isinstance(array, h5py.Dataset) or not array.shape:
        raise ValueError(f"{name} is no array")
    if array.is_virtual or array.external:
        raise ValueError(f"{name} is stored in another file")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} is of {array.dtype}, where numbers are needed")
    layout = array.id.get_create_plist()
    filters = {layout.get_filter(i)[0] for i in range(layout.get_nfilters())}
    if filters - _FILTERS:
        raise ValueError(f"{name} is packed by filters {sorted(filters)}, which are not read")
    ratio = _HIGHEST_RATIO if filters else 1
    if array.nbytes > array.id.get_storage_size() * ratio:
        raise ValueError(f"{name} holds fewer numbers than it says")
    if array.chunks and int(np.prod(array.chunks, dtype=object)) * array.dtype.itemsize > (
        _MOST_CHUNK_BYTES
    ):
        raise ValueError(f"{name} has chunks of more than {_MOST_CHUNK_BYTES} bytes")
    return ArraySpec(tuple(map(int, array.shape[1:])), array.dtype.name)
