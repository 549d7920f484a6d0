"""Reads demonstrations: numbers at once, frames on request, all of them verified.

Reading runs no code from the files and follows no link out of their directory.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from training.command.files import check_regular
from training.demonstrations.dataset import ALL, RecordedIn
from training.demonstrations.format import (
    FORMAT,
    MASTER,
    VERSION,
    ArraySpec,
    Recording,
    check_same,
    episode_path,
    observation_spec,
)
from training.io.config import UserError
from training.io.fingerprint import sha256_of
from training.io.state_files import Finite, check, plain_json

_FILTERS = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32)
ACTIONS = "actions"
"""Name of the expert's actions."""
_MOST_BYTES = 2**26  # limit for numbers read at once; an episode has kilobytes
_MOST_NAME_BYTES = 64
_MOST_REWARD = 1e100  # so that sums are numbers too
_HIGHEST_RATIO = 1032  # of deflate; a higher one is a wrong length


@dataclass(frozen=True)
class Frames:
    """The frames of one demonstration under one key, each read from the disk on access. No file
    stays open, so it may be pickled, forked and shared by threads."""

    path: Path
    spec: ArraySpec
    places: NDArray[np.int64] = field(repr=False)
    """(steps, 2): byte at which a frame's chunk begins, and its compressed size."""

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, step: int) -> NDArray[Any]:
        """The checksummed, read-only frame of a step. Raises UserError if it is damaged."""
        begin, size = self.places[step].tolist()
        try:
            with open(self.path, "rb", buffering=0) as file:
                packed = os.pread(file.fileno(), size, begin)
            unpacker = zlib_ng.decompressobj()  # four times as fast as zlib
            data = unpacker.decompress(packed, self.spec.nbytes + 1)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from None
        except zlib_ng.error as error:  # type: ignore[misc]  # its stub lacks the class
            damage = f"frame {step} does not unpack ({error})"
            raise UserError(f"{self.path} is damaged: {damage}") from None
        if not unpacker.eof or len(data) != self.spec.nbytes:
            raise UserError(f"{self.path} is damaged: frame {step} is not one of {self.spec}")
        return np.frombuffer(data, self.spec.dtype).reshape(self.spec.shape)


@dataclass(frozen=True)
class Demo:
    """One demonstration: numbers in memory, frames on the disk."""

    number: int
    """Number of the episode; `demo_<number>` in the files."""
    path: Path
    seed: int
    final_info: dict[str, float]
    """Numbers in the last `info`: `in_bowls`, `success` and so on."""
    actions: NDArray[Any] = field(repr=False)
    """(steps, k), the expert's, in the environment's units."""
    rewards: NDArray[np.float64] = field(repr=False)
    """(steps,), each that of the step that follows the observation."""
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    """Small observations by key, (steps, ...)."""
    frames: dict[str, Frames] = field(repr=False)
    """Large observations by key."""

    def __len__(self) -> int:
        return len(self.actions)

    def observation(self, step: int) -> dict[str, NDArray[Any]]:
        """The observation before the action of `step`."""
        small = {key: values[step] for key, values in self.arrays.items()}
        return small | {key: frames[step] for key, frames in self.frames.items()}


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    """Open a demonstration file; UserError for any error in the block."""
    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            if text_of(file.attrs, "format") != FORMAT:
                raise UserError(f"{path} is an HDF5 file of another kind, not of {FORMAT}")
            version = file.attrs["version"]
            if version != VERSION:
                raise UserError(
                    f"{path} is of version {version} of {FORMAT}, but this program reads "
                    f"version {VERSION}"
                )
            yield file
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"there is no {path}, where demonstrations should be") from None
    except (OSError, RuntimeError, LookupError, ArithmeticError, ValueError, TypeError, MemoryError,
            RecursionError) as error:  # fmt: skip
        raise UserError(
            f"{path} is not a whole file of demonstrations, it may have been cut short, damaged "
            f"or be of another kind: {' '.join(str(error).split())}"
        ) from None


def text_of(attributes: Any, key: str) -> str:
    """An attribute that is text; "" where it is missing."""
    value = attributes.get(key, b"")
    return value.decode() if isinstance(value, bytes) else str(value)


def _dataset(group: h5py.Group, name: str, steps: int, spec: ArraySpec) -> h5py.Dataset:
    """A valid dataset stored in this file itself; raises ValueError otherwise."""
    dataset = group_at(group, name)
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"{name} is not a dataset")
    found = ArraySpec(dataset.shape[1:], dataset.dtype.name)
    if dataset.shape[:1] != (steps,) or found != spec:
        there = f"{len(dataset) if dataset.shape else 0} of {found}"
        raise ValueError(f"{name} holds {there}, where {steps} of {spec} are needed")
    layout = dataset.id.get_create_plist()
    filters = tuple(layout.get_filter(i)[0] for i in range(layout.get_nfilters()))
    stored = dataset.id.get_storage_size()
    if dataset.chunks is None or filters != _FILTERS or stored * _HIGHEST_RATIO < dataset.nbytes:
        raise ValueError(f"{name} is not stored as checksummed chunks of all its steps")
    if not spec.is_frame and dataset.nbytes > _MOST_BYTES:
        raise ValueError(f"{name} has {dataset.nbytes} bytes, where at most {_MOST_BYTES} are read")
    return dataset


def group_at(owner: h5py.Group, path: str) -> Any:
    """The object at a path within this file, reached through hard links only."""
    for name in path.split("/"):
        inside = isinstance(owner, h5py.Group)
        if not inside or not isinstance(owner.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{path} is missing")
        owner = owner[name]
    return owner


def _places(dataset: h5py.Dataset) -> NDArray[np.int64]:
    """The position of each frame in the file, (steps, 2); raises ValueError if one is absent."""
    places = np.zeros((len(dataset), 2), np.int64)

    def note(chunk: Any) -> None:
        if chunk.filter_mask == 0:
            places[chunk.chunk_offset[0]] = chunk.byte_offset, chunk.size

    if dataset.chunks != (1, *dataset.shape[1:]):
        raise ValueError(f"{dataset.name} has chunks of {dataset.chunks}, not of one frame")
    dataset.id.chunk_iter(note)
    if not places[:, 1].all():
        raise ValueError(f"{dataset.name} lacks frame {int(places[:, 1].argmin())}")
    return places


def master_of(path: Path) -> Path:
    """The file that lists the demonstrations of a directory; a file is returned unchanged."""
    return path / MASTER if os.path.isdir(path) else path


def read_master(path: Path) -> tuple[Recording, list[int], dict[str, list[str]]]:
    """The contents of the file that lists demonstrations: their common metadata, their numbers, and
    the names in each mask, `train` and `valid`. UserError as in `DemoReader`."""
    with _open(path) as file:
        numbers = _listed(file)
        groups = {name: group_at(file, f"mask/{name}") for name in ("train", "valid")}
        masks = {name: names_in(group, len(numbers)) for name, group in groups.items()}
        return _recording(file), numbers, masks


def _recording(file: h5py.File) -> Recording:
    return Recording.from_json(text_of(file.attrs, "recording"), Path(file.filename))


def read_demo(directory: Path, number: int, wanted: Recording | None = None) -> Demo:
    """One episode: numbers are read and checked, frames are only located. Raises UserError as
    `DemoReader`, and for another recording than `wanted`."""
    path = directory / episode_path(number)
    with _open(path) as file:
        recording = _recording(file)
        if wanted is not None and recording != wanted:
            check_same(path, recording, wanted)
        group = group_at(file, f"data/demo_{number}")
        steps = int(group.attrs["num_samples"])
        specs = recording.observation
        datasets = {key: _dataset(group, f"obs/{key}", steps, spec) for key, spec in specs.items()}
        rewards = _dataset(group, "rewards", steps, ArraySpec((), "float64"))[()]
        dones = _dataset(group, "dones", steps, ArraySpec((), "int64"))[()]
        if steps < 1 or dones[:-1].any() or dones[-1] != 1:
            raise ValueError("dones is not 0 for all steps but the last")
        actions = _dataset(group, "actions", steps, recording.action)[()]
        if not (np.isfinite(actions).all() and np.abs(rewards).max() < _MOST_REWARD):
            raise UserError(f"{path} has actions or rewards that are not finite")
        info = plain_json(text_of(group.attrs, "final_info"))
        arrays = {key: datasets[key][()] for key, spec in specs.items() if not spec.is_frame}
        large = {key: spec for key, spec in specs.items() if spec.is_frame}
        return Demo(
            number=number,
            path=path,
            seed=int(group.attrs["seed"]),
            final_info=check(dict[str, Finite], info, path, "final_info."),
            actions=actions,
            rewards=rewards,
            arrays=arrays,
            frames={k: Frames(path, spec, _places(datasets[k])) for k, spec in large.items()},
        )


def verify_demo(directory: Path, number: int, wanted: Recording) -> int:
    """Read every chunk of an episode through HDF5, as other programs do; its number of steps.

    HDF5 checks each chunk's Fletcher-32, zlib the Adler-32 of the unpacked data, `read_demo` the
    rest. Raises UserError for the first error."""
    demo = read_demo(directory, number, wanted)
    with _open(demo.path) as file:
        for key in demo.frames:
            dataset = file[f"data/demo_{number}/obs/{key}"]
            for step in range(len(demo)):
                dataset[step]
    seed = wanted.seed + number
    if demo.seed != seed:
        raise UserError(f"{demo.path} has the seed {demo.seed}, where {seed} is needed")
    return len(demo)


class DemoReader:
    """The demonstrations that a directory's `demos.hdf5` lists; a `dataset.Source`.

    Everything but the frames is in memory; a frame is one read from the disk. It may be pickled
    and forked, as the workers of a torch DataLoader need.

    Args:
        path: the directory, or the `demos.hdf5` in it.
        env_id, observation_space, action_space: of the recording; None accepts any.

    Raises:
        UserError: if a file is missing, cut short, damaged, foreign or of another
            version, or when the demonstrations are of another environment or other shapes.
    """

    kind = "demonstrations of training.demos"

    def __init__(
        self,
        path: str | Path,
        *,
        env_id: str | None = None,
        observation_space: gymnasium.Space[Any] | None = None,
        action_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        self.rate_hz: float | None = None  # that of the environment, which has no other
        self.path = master_of(Path(path))
        self.directory = self.path.parent
        self.recording, numbers, masks = read_master(self.path)
        self._check(env_id, observation_space, action_space)
        self.demos = [read_demo(self.directory, number, self.recording) for number in numbers]
        """All of them, by number."""
        order = {f"demo_{number}": index for index, number in enumerate(numbers)}
        try:
            self._masks = {k: [order[name] for name in names] for k, names in masks.items()}
        except KeyError as error:
            raise UserError(f"{self.path} has a mask that names {error}, which it lacks") from None

    def _check(self, env_id: str | None, observation: Any, action: Any) -> None:
        recorded = self.recording
        if env_id not in (None, recorded.env_id):
            place = f"{self.path} was recorded in {recorded.env_id}"
            raise UserError(f"{place}, but {env_id} is needed")
        found = {f"obs/{key}": spec for key, spec in recorded.observation.items()}
        needed = dict(found)
        if observation is not None:
            needed = {f"obs/{key}": spec for key, spec in observation_spec(observation).items()}
        if action is not None:
            found["actions"], needed["actions"] = recorded.action, ArraySpec.of(action)
        for key in sorted(found.keys() | needed.keys()):
            there, here = found.get(key, "absent"), needed.get(key, "absent")
            if there != here:
                raise UserError(
                    f"{self.path} does not fit the environment: {key} is {there} in it, "
                    f"where {here} is needed"
                )

    def __len__(self) -> int:
        return len(self.demos)

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """Arrays of a step, the expert's `actions` among them."""
        return {**self.recording.observation, ACTIONS: self.recording.action}

    @property
    def recorded_in(self) -> RecordedIn:
        """The environment of the recording."""
        return RecordedIn(self.recording.env_id, self.recording.env)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the episodes."""
        return [demo.seed for demo in self.demos]

    def read(self, episode: int, key: str, steps: slice = ALL) -> NDArray[Any]:
        """Some steps of an episode, (steps, ...). Raises UserError for a damaged frame."""
        demo = self.demos[episode]
        if key == ACTIONS:
            return demo.actions[steps]
        if key in demo.arrays:
            return demo.arrays[key][steps]
        frames = demo.frames[key]
        return np.stack([frames[step] for step in range(len(demo))[steps]])

    def identity(self, train: Sequence[int], valid: Sequence[int]) -> str:
        """SHA-256 over demonstrations that are trained on and held out, except their frames."""
        used = [self.demos[i] for i in (*train, *valid)]
        lengths = [(demo.seed, len(demo)) for demo in used]
        facts = json.dumps([self.recording.to_json(), len(train), lengths])
        arrays = (a for demo in used for a in (demo.actions, demo.rewards, *demo.arrays.values()))
        return sha256_of(chain([facts.encode()], (values.tobytes() for values in arrays)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(demonstrations,) steps of each."""
        return np.array([len(demo) for demo in self.demos], np.int64)

    def mask(self, name: str) -> list[int]:
        """Indices into `demos` of the training ("train") or held-out ("valid") demonstrations."""
        return list(self._masks[name])

    def frame(self, demo: int, step: int, key: str | None = None) -> NDArray[Any]:
        """The read-only frame of a step of `demos[demo]`; `key` is optional where there is only
        one. Raises UserError if it is damaged or missing."""
        frames = self.demos[demo].frames
        if key is None and len(frames) == 1:
            (key,) = frames
        if key is None or key not in frames:
            raise ValueError(f"key = {key!r}, but the frames are {', '.join(frames) or 'none'}")
        return frames[key][step]


def _listed(file: h5py.File) -> list[int]:
    """Numbers of the demonstrations that a master file links to, in order."""
    group, numbers = group_at(file, "data"), []
    for name in group:
        match = re.fullmatch(r"demo_(\d+)", name)
        link = group.get(name, getlink=True)
        if not match or not isinstance(link, h5py.ExternalLink):
            raise ValueError(f"data/{name} is not a link to an episode's file")
        number = int(match[1])
        if (link.filename, link.path) != (episode_path(number), f"/data/{name}"):
            raise ValueError(f"data/{name} leads to {link.filename}, not {episode_path(number)}")
        numbers.append(number)
    return sorted(numbers)


def names_in(dataset: h5py.Dataset, most: int) -> list[str]:
    """The names of at most `most` episodes that a mask holds. Raises ValueError for another one."""
    if not isinstance(dataset, h5py.Dataset) or dataset.ndim != 1:
        raise ValueError(f"{dataset.name} is not a list")
    if len(dataset) > most or dataset.dtype.itemsize > _MOST_NAME_BYTES:
        raise ValueError(f"{dataset.name} holds more than the names of {most} episodes")
    if h5py.check_string_dtype(dataset.dtype) is None:
        raise ValueError(f"{dataset.name} holds {dataset.dtype}, where names are needed")
    return [name.decode() for name in dataset[()].tolist()]
