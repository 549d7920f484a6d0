"""Files of demonstrations: their layout, their metadata, and how they are written.

The layout is robomimic's (https://robomimic.github.io/docs/datasets/overview.html), in one file
an episode:

    DIR/episodes/000123.hdf5   episode 123, complete in itself: data/demo_123/...
    DIR/demos.hdf5             data/demo_123 -> that file (an external link), mask/train, mask/valid

A demonstration is a group with `actions` (steps, k), `rewards` (steps,), `dones` (steps,) and
`obs/<key>` (steps, ...): the observations, the expert's actions, and their outcome. Observations of
`FRAME_BYTES` or more are frames: one per chunk, compressed by zlib, so that each takes one read.

Each file is compressed in memory and written atomically, and HDF5 never touches the disk. A full
disk is thus an OSError of one plain write, and a killed process leaves no half-written file.
"""

import dataclasses
import hashlib
import json
import math
import platform
from pathlib import Path
from typing import Annotated, Any, Self

import gymnasium
import h5py
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.observation import flat, parts_of
from training.command.errors import UserError
from training.command.files import write_atomically
from training.io.fingerprint import differences, fingerprint, version_of
from training.io.state_files import Count, Finite, check, plain_json

FORMAT, VERSION = "foveate-demonstrations", 1
MASTER, EPISODES = "demos.hdf5", "episodes"
FRAME_BYTES = 4096
"""Observations of at least this size a step are frames; smaller ones are read at once."""
BOX_KEY = "observation"
"""The name of an observation that is a Box, which has none."""
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_DTYPES = {np.dtype(code).name for code in "?bhilqBHILQefdg"}
_MOST_BYTES = 2**28  # of a step's array; an image of 1000 x 1000 pixels has 3 MB
_LIBVER = ("v110", "v110")  # HDF5 1.10 (2016), the oldest with checksums of its own structures
_GYM_TYPE = 2  # robomimic.envs.env_base.EnvType
_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_LEVEL = 6  # of zlib: BimanualSweep-v0's frames take 40, 32, 29, 28 kB at levels 1, 4, 6, 9


@dataclass(frozen=True, config=_STRICT)
class ArraySpec:
    """Shape and type of one step's array."""

    shape: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=16)]
    dtype: str
    """numpy's name of it: "uint8", "float32"."""

    @model_validator(mode="after")
    def _numbers(self) -> Self:
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be numpy's name of a type of numbers, got {self.dtype!r}")
        if self.nbytes > _MOST_BYTES:
            raise ValueError(
                f"an array of shape {list(self.shape)} has {self.nbytes} bytes, where at most "
                f"{_MOST_BYTES} are read"
            )
        return self

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> Self:
        """The shape and type of a space's elements."""
        return cls(tuple(map(int, space.shape or ())), np.dtype(space.dtype).name)

    @property
    def nbytes(self) -> int:
        """Size of one step, bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def is_frame(self) -> bool:
        """Whether each step is a separate chunk."""
        return self.nbytes >= FRAME_BYTES

    def __str__(self) -> str:
        return f"{self.shape} of {self.dtype}"


def observation_spec(space: gymnasium.Space[Any]) -> dict[str, ArraySpec]:
    """Arrays that an observation consists of, by key, those of nested ones by "a.b"; raises
    UserError for a part without numbers, or a name with a slash."""
    parts = dict(parts_of(space))
    for key, part in parts.items():
        if not isinstance(part, _NUMBERS) or "/" in key:
            raise UserError(
                f"observation {key!r} is {part}, but a demonstration holds numbers (Box, Discrete, "
                "MultiDiscrete, MultiBinary), or a Dict or Tuple of them with names without '/'"
            )
    return {key: ArraySpec.of(part) for key, part in parts.items()}


@dataclass(frozen=True, config=_STRICT)
class Recording:
    """The metadata shared by all demonstrations of a directory."""

    env_id: str
    env: dict[str, Any]
    """Settings of the environment, with every default where they are known."""
    seed: Count
    """Episode i began with `reset(seed=seed + i)`."""
    after_done_steps: Annotated[int, Field(ge=-1, lt=2**31)]
    """Steps recorded after `info["success"]` or `expert_done` first holds; -1: all."""
    noise: Annotated[Finite, Field(ge=0)]
    """Standard deviation of the noise on executed actions, as a share of half their range."""
    observation: dict[str, ArraySpec]
    action: ArraySpec
    packages: dict[str, str | None]
    """Versions of those that decide what an episode is."""

    def to_json(self) -> str:
        """Equal text for equal recordings."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, path: Path) -> Self:
        """Parse the output of `to_json` from a file; raises UserError for other text."""
        try:
            data = plain_json(text)
        except ValueError as error:
            raise UserError(f"{path} is damaged: its recording is no JSON: {error}") from None
        return check(cls, data, path, "recording.")


def check_same(path: Path, found: Recording, wanted: Recording) -> None:
    """Raise UserError, which names the first difference, if two recordings differ."""
    for change in differences(*(fingerprint(dataclasses.asdict(one)) for one in (found, wanted))):
        raise UserError(
            f"{path} was recorded with {change.describe()}: give the same again, "
            "or another directory"
        )


def episode_path(number: int) -> str:
    """The path of episode `number` relative to the directory."""
    return f"{EPISODES}/{number:06d}.hdf5"


def decisive_packages() -> dict[str, str | None]:
    """Versions of the packages that determine the episode of a seed."""
    return {name: version_of(name) for name in ("foveate", "pybullet")}


def _new_file(name: str, recording: Recording) -> h5py.File:
    """A file in memory with the attributes of every demonstration file.

    Texts are of fixed length: HDF5 keeps others where it has no checksum.
    """
    file = h5py.File(
        name, "w", driver="core", backing_store=False, block_size=2**20, libver=_LIBVER
    )
    text = recording.to_json()
    versions = {name: version_of(name) for name in ("gymnasium", "h5py", "numpy")}
    versions["python"] = platform.python_version()
    file.attrs["format"] = np.bytes_(FORMAT)
    file.attrs["version"] = VERSION
    file.attrs["recording"] = np.bytes_(text)
    file.attrs["recording_sha256"] = np.bytes_(hashlib.sha256(text.encode()).hexdigest())
    file.attrs["versions"] = np.bytes_(json.dumps(versions))
    data = file.create_group("data")
    arguments = {"env_name": recording.env_id, "type": _GYM_TYPE, "env_kwargs": recording.env}
    data.attrs["env_args"] = np.bytes_(json.dumps(arguments))
    return file


def _image(file: h5py.File) -> bytes:
    """The contents of the file as bytes."""
    file.flush()
    image: bytes = file.id.get_file_image()
    return image


class EpisodeWriter:
    """Collects the steps of an episode in memory, frames compressed; `save` writes its file.

    Equal steps give equal bytes, with the same versions of the packages.
    """

    def __init__(self, recording: Recording, number: int) -> None:
        self._recording, self._number = recording, number
        self._file = _new_file(f"demo_{number}", recording)
        self._group = self._file.create_group(f"data/demo_{number}")
        self._frames: dict[str, h5py.Dataset] = {}
        self._small: dict[str, list[NDArray[Any]]] = {}
        for key, spec in recording.observation.items():
            if spec.is_frame:
                shapes = {"shape": (0, *spec.shape), "maxshape": (None, *spec.shape)}
                chunks = (1, *spec.shape)
                self._frames[key] = self._create(f"obs/{key}", spec, chunks=chunks, **shapes)
            else:
                self._small[key] = []
        self._actions: list[NDArray[Any]] = []
        self._rewards: list[float] = []

    def _create(self, name: str, spec: ArraySpec, **layout: Any) -> h5py.Dataset:
        options = {"compression": "gzip", "compression_opts": _LEVEL, "fletcher32": True}
        return self._group.create_dataset(
            name, dtype=spec.dtype, track_times=False, **options, **layout
        )

    def add(self, observation: Any, action: NDArray[Any], reward: float) -> None:
        """Add one step: the observation, the expert's action, and the reward that followed."""
        parts = flat(observation)
        step = len(self._actions)
        for key, frames in self._frames.items():
            frames.resize(step + 1, axis=0)
            frames[step] = parts[key]
        for key, values in self._small.items():
            values.append(np.array(parts[key]))
        self._actions.append(np.array(action))
        self._rewards.append(reward)

    def save(self, directory: Path, seed: int, final_info: dict[str, float]) -> None:
        """Write the file into `directory` atomically. Raises OSError if that is impossible."""
        steps = len(self._actions)
        for key, values in self._small.items():
            self._put(f"obs/{key}", self._recording.observation[key], values)
        self._put("actions", self._recording.action, self._actions)
        self._put("rewards", ArraySpec((), "float64"), self._rewards)
        self._put("dones", ArraySpec((), "int64"), [0] * (steps - 1) + [1])
        self._group.attrs["num_samples"] = steps
        self._group.attrs["seed"] = seed
        self._group.attrs["reward_sum"] = sum(self._rewards)
        self._group.attrs["reward_last"] = self._rewards[-1]
        self._group.attrs["final_info"] = np.bytes_(json.dumps(final_info, sort_keys=True))
        self._file["data"].attrs["total"] = steps
        write_atomically(directory / episode_path(self._number), _image(self._file))

    def _put(self, name: str, spec: ArraySpec, values: list[Any]) -> None:
        data = np.asarray(values, spec.dtype)
        self._create(name, spec, data=data, chunks=data.shape)

    def close(self) -> None:
        """Release the memory."""
        self._file.close()


def split(numbers: list[int], valid_share: float) -> tuple[list[int], list[int]]:
    """Which of the episodes to train on, and which to hold out.

    The split depends on an episode's number alone, so a directory may grow; but of two or more
    episodes one is always held out, the last, unless the share is 0.
    """
    valid = [n for n in numbers if int((n + 1) * valid_share) > int(n * valid_share)]
    if not valid and valid_share > 0 and len(numbers) > 1:
        valid = numbers[-1:]
    return [number for number in numbers if number not in set(valid)], valid


def write_master(
    directory: Path, recording: Recording, lengths: dict[int, int], valid_share: float
) -> None:
    """Replace `demos.hdf5` atomically by one that links to the given episodes.

    Args:
        directory: directory of the demonstrations.
        recording: their common metadata.
        lengths: number of steps of each episode, by its number.
        valid_share: share of the episodes held out for validation.

    Raises OSError if it cannot be written.
    """
    numbers = sorted(lengths)
    with _new_file(MASTER, recording) as file:
        data = file["data"]
        data.attrs["total"] = sum(lengths.values())
        for number in numbers:
            name = f"demo_{number}"
            data[name] = h5py.ExternalLink(episode_path(number), f"/data/{name}")
        for name, chosen in zip(("train", "valid"), split(numbers, valid_share), strict=True):
            names = np.array([f"demo_{number}" for number in chosen], "S")
            checked = {"chunks": names.shape, "fletcher32": True} if chosen else {}
            file.create_dataset(f"mask/{name}", data=names, track_times=False, **checked)
        image = _image(file)
    write_atomically(directory / MASTER, image)
