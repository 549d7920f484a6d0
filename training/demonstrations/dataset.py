"""Opened datasets of demonstrations in any format, matched with an environment.

`open_source` chooses the reader by what lies at a path:

    demos.hdf5 of training.demos             training.demonstrations.reader
    another file of HDF5: robomimic's        training.demonstrations.robomimic_reader
    meta/info.json: a LeRobotDataset         training.demonstrations.lerobot_reader
    *.npz, an episode each                   training.demonstrations.npz_reader

What uses a dataset sees a `Source` or a `Dataset` alone.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from policies.common.observation import parts_of
from training.collect import environments
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.command.errors import UserError, did_you_mean
from training.demonstrations.format import ArraySpec
from training.io.fingerprint import differences, sha256_of

ACTION = "action"
"""The name of the action in `demonstrations_keys`."""
_ACTIONS = ("action", "actions")
_NOT_OBSERVED = (*_ACTIONS, "reward", "rewards", "done", "dones", "terminated", "truncated")
_STATE = "observation.state"  # LeRobot's name of a robot's vector
_WHOLE = "observation"
_PREFIXES = ("", "observation.images.", "observation.image.", "observation.", "obs/")
_RATES_DIFFER = 0.01
_BEYOND = 1e-3
"""Share of an action's range by which rounding may leave its bounds."""
_MEMORY_SHARE = 0.4  # training splits them, which copies
ALL = slice(None)


class RecordedIn(NamedTuple):
    """The environment of a recording."""

    env_id: str
    settings: dict[str, Any]


class Source(Protocol):
    """An opened dataset: whole episodes of arrays, by their names in the files."""

    path: Path
    kind: str
    """Name of the format."""

    @property
    def specs(self) -> Mapping[str, ArraySpec]:
        """Arrays of a step, the action among them."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(episodes,) steps of each."""

    @property
    def rate_hz(self) -> float | None:
        """Steps a second; None: unknown."""

    @property
    def recorded_in(self) -> RecordedIn | None:
        """An environment of this package's commands; None: unknown."""

    @property
    def seeds(self) -> Sequence[int]:
        """Seeds of the episodes; empty where unknown."""

    def mask(self, name: str) -> list[int]:
        """Episodes to train on ("train") or held out ("valid"); both are empty where the files have
        no split."""

    def read(self, episode: int, key: str, steps: slice = ALL) -> NDArray[Any]:
        """Some steps of an episode, (steps, ...). Raises UserError for a damaged file."""

    def identity(self, train: Sequence[int], valid: Sequence[int]) -> str:
        """SHA-256 over episodes that are trained on and held out, except their frames."""


def open_source(path: str | Path) -> Source:
    """Open the dataset at a path; raises UserError if there is none, or it is damaged."""
    from training.demonstrations.format import MASTER  # these import this module
    from training.demonstrations.lerobot_reader import LeRobotSource
    from training.demonstrations.npz_reader import NpzSource
    from training.demonstrations.reader import DemoReader
    from training.demonstrations.robomimic_reader import RobomimicSource, is_robomimic

    path = Path(path)
    if os.path.isdir(path):
        if os.path.lexists(path / "meta" / "info.json"):
            return LeRobotSource(path)
        if not os.path.lexists(path / MASTER):
            found = next(iter(path.rglob("*.npz")), None)
            files = sorted(path.glob("*.hdf5")) + sorted(path.glob("*.h5"))
            if found is None and len(files) == 1:
                return RobomimicSource(files[0])
            if found is not None:
                return NpzSource(path)
            raise UserError(
                f"{path} holds no demonstrations: neither {MASTER} of training.demos, nor one file "
                "*.hdf5 of robomimic's, nor meta/info.json of a LeRobotDataset, nor *.npz files"
            )
    elif is_robomimic(path):
        return RobomimicSource(path)
    return DemoReader(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """UserError, which names the file, for any error in the block: what parses foreign files can
    raise anything."""
    try:
        yield
    except (UserError, ImportError):
        raise
    except FileNotFoundError:
        raise UserError(f"there is no {path}, where demonstrations should be") from None
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} cannot be read as demonstrations: {said}") from None


def inside(folder: Path, name: str) -> Path:
    """A file below a folder; raises ValueError if it lies outside, also by a link."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name} leads out of {folder}: copy the file itself into it")
    return path


def memory_limit() -> int:
    """Bytes that demonstrations may take of this machine's memory."""
    return int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_lengths(path: Path, lengths: NDArray[np.int64], row_bytes: int) -> None:
    """UserError without steps, or for more numbers than this machine's memory holds."""
    if not len(lengths) or int(lengths.min()) < 1:
        raise UserError(f"{path} has {len(lengths)} episodes, where each needs at least one step")
    size, limit = sum(map(int, lengths)) * row_bytes, memory_limit()
    if size > limit:
        raise UserError(
            f"{path} takes {size / 1e9:.1f} GB in memory, where at most {limit / 1e9:.1f} GB, "
            f"{_MEMORY_SHARE:.0%} of this machine's, can be used: use fewer episodes (demos_used) "
            "or smaller images"
        )


class FileSource:
    """What the `Source`s of other programs' files share: arrays are read one at a time."""

    path: Path
    specs: Mapping[str, ArraySpec]
    lengths: NDArray[np.int64]
    recorded_in: RecordedIn | None = None
    seeds: Sequence[int] = ()
    _masks: Mapping[str, Sequence[int]]

    def mask(self, name: str) -> list[int]:
        """See `Source`."""
        return list(self._masks[name])

    def read(self, episode: int, key: str, steps: slice = ALL) -> NDArray[Any]:
        """See `Source`."""
        raise NotImplementedError

    def identity(self, train: Sequence[int], valid: Sequence[int]) -> str:
        """See `Source`."""
        names = sorted(key for key, spec in self.specs.items() if not spec.is_frame)
        used = [*train, *valid]
        facts = {key: str(self.specs[key]) for key in sorted(self.specs)}
        text = json.dumps([facts, len(train), [int(self.lengths[i]) for i in used]])
        arrays = (self.read(i, name).tobytes() for i in used for name in names)
        return sha256_of(chain([text.encode()], arrays))

    def _check_lengths(self, more_bytes: int = 0) -> None:
        """`check_lengths` of everything but frames, which are read when they are needed."""
        row = sum(spec.nbytes for spec in self.specs.values() if not spec.is_frame)
        check_lengths(self.path, self.lengths, more_bytes + row)


def spaces_of(source: Source, keys: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings of RecordedSpaces-v0 for a dataset, and the keys of its parts.

    The parts are those of `keys`, or everything observed where these name no observation. Bounds of
    the action are those of the data, 5 % of the range wider on either side.
    """
    found = {key: part for key, part in keys.items() if part == ACTION}
    action = next(iter(found), next((key for key in _ACTIONS if key in source.specs), ""))
    unknown = [key for key in keys if key not in source.specs]
    if unknown or not action:
        what = f"demonstrations_keys names {unknown[0]!r}" if unknown else "an action is needed"
        raise UserError(f"{what}, but {source.path} holds {', '.join(source.specs)}")
    chosen = {key: part for key, part in keys.items() if part != ACTION} or _observed(source)
    if not chosen:
        raise UserError(
            f"demonstrations_keys must name what is observed, {source.path} holds "
            f"{', '.join(source.specs)}"
        )
    parts = {}
    for key, part in chosen.items():
        spec = source.specs[key]
        parts[part] = {"shape": list(spec.shape) or [1], "dtype": _plain_type(spec)}
        if spec.dtype == "uint8":
            parts[part] |= {"low": [0.0], "high": [255.0]}
        elif parts[part]["dtype"] == "int64":
            raise UserError(
                f"{source.path}: {key} is {spec}, where floats or images of uint8 are needed"
            )
    spec = source.specs[action]
    low, high = _range(source, action)
    margin = np.maximum(0.05 * (high - low), 1e-3)
    act = {
        "shape": list(spec.shape) or [1], "dtype": "float32",
        "low": (low - margin).ravel().tolist(), "high": (high + margin).ravel().tolist(),
    }  # fmt: skip
    settings = {"observation": parts, "action": act, "rate_hz": source.rate_hz}
    return settings, {**chosen, action: ACTION}


def _observed(source: Source) -> dict[str, str]:
    """Short names of the observations of a dataset, by their keys."""
    lerobot = [key for key in source.specs if key.startswith("observation.")]
    if not lerobot:
        return {key: key.replace(".", "_") for key in source.specs if key not in _NOT_OBSERVED}
    short = {key: key.removeprefix("observation.").removeprefix("images.") for key in lerobot}
    return {key: name.replace(".", "_") for key, name in short.items()}


def _plain_type(spec: ArraySpec) -> str:
    kind = np.dtype(spec.dtype)
    return "uint8" if kind == np.uint8 else "float32" if kind.kind == "f" else "int64"


def _range(source: Source, key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and largest numbers of an array's elements."""
    low, high = math.inf, -math.inf
    for episode in range(len(source.lengths)):
        values = source.read(episode, key).astype(np.float64)
        low, high = np.minimum(low, values.min(0)), np.maximum(high, values.max(0))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(f"{source.path}: {key} has numbers that are not finite")
    return np.asarray(low), np.asarray(high)


class Dataset:
    """Demonstrations as observations and actions of an environment.

    Args:
        source: the opened files.
        env: environment, whose spaces, settings and rate are compared.
        env_id: its Gymnasium id.
        settings: its settings.
        keys: part of the observation, or "action", by name in the files; parts without one are
            matched by name.
        rate_hz: steps per second, in place of the files' rate.
        held_out: share of the episodes held out where the files have no split, evenly spread, at
            least one.
        most: how many of the others to train on, from the first; None: all.

    Raises:
        UserError: the demonstrations do not fit the environment.
    """

    def __init__(
        self, source: Source, env: gymnasium.Env[Any, Any], env_id: str,
        settings: dict[str, Any], keys: Mapping[str, str], rate_hz: float | None = None,
        held_out: float = 0.1, most: int | None = None,
    ) -> None:  # fmt: skip
        self.source, self.path, self._env_id = source, source.path, env_id
        parts = dict(parts_of(env.observation_space))
        if ACTION in parts:
            raise UserError(f"an observation of {env_id} has a part {ACTION!r}: rename it")
        self._spaces: dict[str, Any] = {**parts, ACTION: env.action_space}
        self._check_recorded_in(settings)
        self.keys = self._matched(keys)
        """Names in the files, by part of the observation and "action"."""
        self._turns = {part: self._turned(part) for part in self.keys}
        self._check_rate(env, rate_hz)
        train, self.valid = self._split(held_out)
        self.train = train[:most]

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(episodes,) steps of each."""
        return self.source.lengths

    @cached_property
    def parts(self) -> list[str]:
        """Names of the parts of an observation."""
        return [part for part in self._spaces if part != ACTION]

    def shape(self, part: str) -> tuple[int, ...]:
        """Shape of a part of the observation, or of the action."""
        return tuple(self._spaces[part].shape or ())

    def read(self, episode: int, part: str, steps: slice = ALL) -> NDArray[Any]:
        """A part of the observation, or the action, as the space has it, (steps, ...); raises
        UserError for numbers that are not finite, and for actions out of their space."""
        values = self._turn(part, self.source.read(episode, self.keys[part], steps))
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise UserError(
                f"{self.path}: {self.keys[part]} of episode {episode} has numbers that are not "
                "finite"
            )
        return self._within(part, values, episode) if self._bounded(part) else values

    def describe(self) -> str:
        """The cloned dataset, in one line."""
        names = [f"{key} as {part}" for part, key in self.keys.items() if key != part]
        rate = self.source.rate_hz
        at = f" at {rate:g} Hz" if rate else ""
        return (
            f"{self.path}: {self.source.kind}, {len(self)} episodes ({len(self.train)} to train "
            f"on, {len(self.valid)} held out), {int(self.lengths.sum())} steps{at}"
            f"{'; ' * bool(names)}{', '.join(names)}"
        )

    # --- what must agree ---

    def _check_recorded_in(self, settings: dict[str, Any]) -> None:
        recorded = self.source.recorded_in
        if recorded is None:
            return
        if not environments.same(recorded.env_id, self._env_id):
            raise UserError(
                f"{self.path} was recorded in {recorded.env_id}, but {self._env_id} is needed"
            )
        there, here = (
            environments.embodiment(self._env_id, environments.completed(self._env_id, one))
            for one in (recorded.settings, settings)
        )
        for change in differences(there, here):
            what = change.describe(f"the run has env.{change.key} =")
            raise UserError(f"{self.path} was recorded with {what}; give the same value")
        late = [seed for seed in self.source.seeds if seed >= VALIDATION_SEEDS_FROM]
        if late:
            raise UserError(
                f"{self.path} has a demonstration of seed {late[0]}, but those from "
                f"{VALIDATION_SEEDS_FROM} up are kept for validation and evaluation"
            )

    def _check_rate(self, env: gymnasium.Env[Any, Any], given: float | None) -> None:
        there, here = given or self.source.rate_hz, 1 / environments.step_s(env)
        if there is None or math.isnan(here) or abs(there / here - 1) <= _RATES_DIFFER:
            return
        said = "demonstrations_rate_hz says" if given else f"{self.path} has"
        raise UserError(
            f"{said} {there:g} steps a second, where {self._env_id} has {here:g}; if the "
            "demonstrations were recorded at that rate, give "
            f"demonstrations_rate_hz={here:g}"
        )

    def _matched(self, given: Mapping[str, str]) -> dict[str, str]:
        known = list(self.source.specs)
        found: dict[str, str] = {}
        for key, part in given.items():
            if key not in known:
                raise UserError(
                    f"demonstrations_keys names {key!r}, but {self.path} holds "
                    f"{', '.join(known)}{did_you_mean(key, known)}"
                )
            if part not in self._spaces:
                raise UserError(
                    f"demonstrations_keys maps {key} to {part!r}, where {self._env_id} has "
                    f"{', '.join(self._spaces)}{did_you_mean(part, self._spaces)}"
                )
            if part in found:
                raise UserError(
                    f"demonstrations_keys maps both {found[part]} and {key} to {part}, which takes "
                    "one of them"
                )
            found[part] = key
        used = set(found.values())
        vectors = [part for part in self._spaces if part != ACTION and self._is_vector(part)]
        for part in self._spaces:
            if part in found:
                continue
            names = [prefix + part for prefix in _PREFIXES]
            if part == ACTION:
                names = [*_ACTIONS]
            elif vectors == [part]:
                names.append(_STATE)
            if part == _WHOLE:
                names += ["observation.environment_state", _STATE]
                rest = [key for key in known if key not in (*used, *_ACTIONS)]
                names += rest if len(rest) == 1 else []
            key = next((name for name in names if name in known and name not in used), "")
            if not key:
                what = "action" if part == ACTION else f"observation {part}"
                raise UserError(
                    f"{self.path} holds nothing for {what} of {self._env_id}: demonstrations_keys "
                    f"must map one of {', '.join(k for k in known if k not in used)} to {part}"
                )
            found[part] = key
            used.add(key)
        return {part: found[part] for part in self._spaces}

    def _is_vector(self, part: str) -> bool:
        return len(self._spaces[part].shape or ()) == 1

    def _turned(self, part: str) -> tuple[int, ...] | None:
        """The order of axes that converts an image of the other layout; None: no conversion. Raises
        UserError for another shape or type."""
        key, space = self.keys[part], self._spaces[part]
        shape, spec = tuple(space.shape or ()), self.source.specs[key]
        what = f"{self.path}: {key}, for {part} of {self._env_id}, is {spec}"
        dtype = np.dtype(spec.dtype)
        whole = space.dtype.kind in "iub"
        if whole and dtype.kind == "f" and isinstance(space, spaces.Box) and len(shape) > 1:
            raise UserError(f"{what}, where whole numbers, {space.dtype}, are needed")
        if spec.shape == shape or _squeezed(spec.shape) == _squeezed(shape):
            return None
        if len(shape) == 3 == len(spec.shape):
            for order in ((2, 0, 1), (1, 2, 0)):  # to CHW, to HWC
                if tuple(spec.shape[i] for i in order) == shape and _are_channels(
                    spec.shape, shape
                ):
                    return order
        raise UserError(f"{what}, where {shape} is needed")

    def _turn(self, part: str, values: NDArray[Any]) -> NDArray[Any]:
        space, order = self._spaces[part], self._turns[part]
        if order is not None:
            values = values.transpose(0, *(1 + axis for axis in order))
        values = values.reshape(len(values), *(space.shape or ()))
        image = values.ndim > 2 and values.dtype == np.uint8 and space.dtype.kind == "f"
        if image and isinstance(space, spaces.Box) and float(np.max(space.high)) <= 1:
            return (values / np.float32(255)).astype(space.dtype)
        if space.dtype.kind in "iub" and values.dtype.kind == "f":
            values = values.round()
        return values.astype(space.dtype, copy=False)

    def _bounded(self, part: str) -> bool:
        space = self._spaces[part]
        return part == ACTION or not isinstance(space, spaces.Box)

    def _within(self, part: str, values: NDArray[Any], episode: int) -> NDArray[Any]:
        """The values, rounding beyond the bounds cut off; raises UserError for others beyond."""
        space = self._spaces[part]
        low: Any
        high: Any
        if isinstance(space, spaces.Box):
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        elif isinstance(space, spaces.MultiBinary):
            low, high = 0, 1
        else:
            count = space.n if isinstance(space, spaces.Discrete) else space.nvec
            low, high = space.start, space.start + count - 1
        with np.errstate(invalid="ignore"):
            slack = np.nan_to_num(_BEYOND * (np.subtract(high, low)), posinf=0.0)
        wrong = (values < low - slack) | (values > high + slack)
        if wrong.any():
            raise UserError(
                f"{self.path}: {self.keys[part]} of episode {episode} reaches "
                f"{values[wrong].flat[0]:g}, beyond {space} of {self._env_id}: it may be of "
                "another robot, or in other units"
            )
        clipped: NDArray[Any] = np.clip(values, low, high).astype(space.dtype)
        return clipped

    def _split(self, held_out: float) -> tuple[list[int], list[int]]:
        train, valid = (self.source.mask(name) for name in ("train", "valid"))
        if set(train) & set(valid):
            raise UserError(f"{self.path} both trains on and holds out an episode")
        if not train and not valid:
            valid = evenly_held_out(len(self), held_out)
            train = sorted(set(range(len(self))) - set(valid))
        if not train or not valid:
            raise UserError(
                f"{self.path} has {len(train)} episodes to train on and {len(valid)} held out, "
                "where at least one of each is needed"
            )
        return train, valid


def evenly_held_out(count: int, share: float) -> list[int]:
    """Which of `count` episodes are held out: the share, rounded down, evenly spread, and at least
    the last."""
    due = np.floor(np.arange(count + 1) * share + 1e-9)  # 100 * 0.29 is a little less than 29
    marks = np.diff(due) > 0
    marks[-1:] |= not marks.any()
    return [int(i) for i in np.flatnonzero(marks)]


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _are_channels(*shapes: tuple[int, ...]) -> bool:
    """Whether the axis that moves has as few numbers as an image has channels."""
    return all(min(shape[0], shape[-1]) <= 4 for shape in shapes)
