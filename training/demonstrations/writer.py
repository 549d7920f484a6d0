"""Writing demonstrations: an episode's file is compressed in memory and written atomically.

HDF5 never touches the disk here. A full disk is thus an OSError of one plain write, and a killed
process leaves no half-written file.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.command.files import write_atomically
from training.demonstrations.format import (
    BOX_KEY,
    FORMAT,
    MASTER,
    VERSION,
    ArraySpec,
    Recording,
    episode_path,
)
from training.io.fingerprint import version_of

_LIBVER = ("v110", "v110")
"""Of HDF5 1.10 (2016): the oldest whose bookkeeping bears checksums too."""
_GYM_TYPE = 2  # robomimic.envs.env_base.EnvType
_LEVEL = 6
"""Of zlib: frames of BimanualSweep-v0 take 40, 32, 29 and 28 kB at levels 1, 4, 6 and 9."""
_PACKAGES = ("gymnasium", "h5py", "numpy")


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
    versions = {name: version_of(name) for name in _PACKAGES}
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
    """Collects an episode's steps; frames are compressed immediately.

    Equal steps give an equal file, byte for byte, with the same versions of the packages.
    """

    def __init__(self, recording: Recording, number: int) -> None:
        self._recording, self._number = recording, number
        self._file = _new_file(f"demo_{number}", recording)
        self._group = self._file.create_group(f"data/demo_{number}")
        self._frames = {
            key: self._create(
                f"obs/{key}", spec, shape=(0, *spec.shape),
                maxshape=(None, *spec.shape), chunks=(1, *spec.shape),
            )
            for key, spec in recording.observation.items()
            if spec.is_frame
        }  # fmt: skip
        self._small: dict[str, list[Any]] = {
            f"obs/{key}": []
            for key, spec in recording.observation.items()
            if key not in self._frames
        }
        self._actions: list[NDArray[Any]] = []
        self._rewards: list[float] = []

    def _create(self, name: str, spec: ArraySpec, **layout: Any) -> h5py.Dataset:
        return self._group.create_dataset(
            name, dtype=spec.dtype, compression="gzip", compression_opts=_LEVEL, fletcher32=True,
            track_times=False, **layout,
        )  # fmt: skip

    def add(self, observation: Any, action: NDArray[Any], reward: float) -> None:
        """Add one step: the observation, the expert's action, and the reward that followed."""
        parts = observation if isinstance(observation, Mapping) else {BOX_KEY: observation}
        step = len(self._actions)
        for key, frames in self._frames.items():
            frames.resize(step + 1, axis=0)
            frames[step] = parts[key]
        for name, values in self._small.items():
            values.append(np.array(parts[name.removeprefix("obs/")]))
        self._actions.append(np.array(action))
        self._rewards.append(reward)

    def save(self, directory: Path, seed: int, final_info: dict[str, float]) -> None:
        """Write the file into `directory` atomically. Raises OSError if that is impossible."""
        steps = len(self._actions)
        specs, action = self._recording.observation, self._recording.action
        for name, values in self._small.items():
            self._put(name, specs[name.removeprefix("obs/")], values)
        self._put("actions", action, self._actions)
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
    """Replace `demos.hdf5` by one that links to the given episodes, in one step.

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
