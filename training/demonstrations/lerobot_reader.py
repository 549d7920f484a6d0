"""Reads a LeRobotDataset of format v2.1 or v3.0, without LeRobot (extra `lerobot`).

The layouts are those of https://github.com/huggingface/lerobot (releases 0.3 and 0.4):

    v2.1  meta/episodes.jsonl                          an episode a line
          data/chunk-000/episode_000000.parquet        a frame a row
          videos/chunk-000/KEY/episode_000000.mp4
    v3.0  meta/episodes/chunk-000/file-000.parquet     an episode a row: where its frames are
          data/chunk-000/file-000.parquet              a frame a row, of many episodes
          videos/KEY/chunk-000/file-000.mp4            of many episodes

Paths are fixed and do not depend on meta/info.json, and links out of the folder are refused. Images
are PNG or JPEG in the rows, or frames of a video: the frame whose time is nearest to the row's, at
most `TOLERANCE_S` away, as LeRobot has it."""

import io
import math
from collections.abc import Iterator
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

import foveate_extras
from training.command.errors import UserError
from training.command.files import check_regular, read_bytes
from training.demonstrations.dataset import (
    ALL,
    FileSource,
    RecordedIn,
    inside,
    reading,
)
from training.demonstrations.format import ArraySpec
from training.io.state_files import State, plain_json, read_json

TOLERANCE_S = 1e-4
"""Largest difference between the time of a row and that of its frame, LeRobot's `tolerance_s`."""
VERSIONS = ("v2.1", "v3.0")
_OF_V3 = "chunk-{:03d}/file-{:03d}.parquet"
_OWN = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_IMAGES = ("image", "video")
_NUMBERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
            "float16", "float32", "float64")  # fmt: skip
_MOST_EPISODES, _MOST_BYTES = 10**6, 2**31
_MOST_FRAMES = 10**5
"""Frames from a video's key frame to the first that is needed, at most."""
_ROWS_AT_ONCE = 32
_SPLITS = {"train": ("train",), "valid": ("valid", "val", "validation")}


@dataclass(frozen=True, config=State)
class _Feature:
    dtype: str
    shape: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=16)]
    names: Any = None


@dataclass(frozen=True, config=State)
class _Info:
    codebase_version: str
    fps: Annotated[float, Field(gt=0, lt=1e6)]
    features: dict[str, _Feature]
    chunks_size: Annotated[int, Field(ge=1, lt=2**31)] = 1000
    splits: dict[str, Any] = field(default_factory=dict)
    foveate: Any = None


class _Episode(NamedTuple):
    number: int
    length: int
    file: str
    """Of its rows."""
    videos: dict[str, tuple[str, float]]
    """File and time of its first frame, seconds, by camera."""


class LeRobotSource(FileSource):
    """The `training.demonstrations.dataset.Source` of such a dataset.

    Raises:
        MissingExtraError: without PyArrow or, for videos, PyAV.
        UserError: for a damaged dataset, or one of another version.
    """

    def __init__(self, path: Path) -> None:
        foveate_extras.require("a LeRobotDataset", "lerobot", "pyarrow")
        self.path = path
        place = path / "meta" / "info.json"
        with reading(place):
            info = read_json(_Info, inside(path, "meta/info.json"))
        if info.codebase_version not in VERSIONS:
            raise UserError(
                f"{place} is of LeRobot's format {info.codebase_version!r}, where "
                f"{' or '.join(VERSIONS)} is needed"
            )
        self.kind = f"LeRobotDataset {info.codebase_version}"
        self.rate_hz: float | None = info.fps
        with reading(place):
            self._dtypes = {key: one.dtype for key, one in info.features.items()}
            self.specs = {
                key: _spec(one)
                for key, one in info.features.items()
                if key not in _OWN and one.dtype in (*_IMAGES, *_NUMBERS)
            }
        if any(self._dtypes[key] == "video" for key in self.specs):
            foveate_extras.require("a LeRobotDataset with videos", "lerobot", "av")
        read = self._episodes_of_v2 if info.codebase_version == "v2.1" else self._episodes_of_v3
        self._episodes = sorted(read(info))
        if len(self._episodes) > _MOST_EPISODES:
            raise UserError(f"{path} has more than {_MOST_EPISODES} episodes")
        self.lengths = np.array([one.length for one in self._episodes], np.int64)
        self._check_lengths(8)
        self._masks = self._splits(info)
        if isinstance(info.foveate, dict):
            self._of_training_lerobot(info.foveate)
        self._column = lru_cache(maxsize=2 * len(info.features))(self._whole_column)

    def __reduce__(self) -> Any:
        return LeRobotSource, (self.path,)

    # --- episodes and splits ---

    def _episodes_of_v2(self, info: _Info) -> Iterator[_Episode]:
        place = self.path / "meta" / "episodes.jsonl"
        with reading(place):
            text = read_bytes(inside(self.path, "meta/episodes.jsonl")).decode()
            for line in text.splitlines():
                if not line.strip():
                    continue
                row = plain_json(line)
                index, length = _count(row, "episode_index"), _count(row, "length")
                chunk = f"chunk-{index // info.chunks_size:03d}"
                name = f"episode_{index:06d}"
                videos = {
                    key: (f"videos/{chunk}/{key}/{name}.mp4", 0.0) for key in self._video_keys
                }
                yield _Episode(index, length, f"data/{chunk}/{name}.parquet", videos)

    def _episodes_of_v3(self, info: _Info) -> Iterator[_Episode]:
        folder = self.path / "meta" / "episodes"
        files = sorted(folder.glob("chunk-*/file-*.parquet"))
        if not files:
            raise UserError(f"there is no {folder / _OF_V3.format(0, 0)} of a LeRobotDataset")
        at = ("chunk_index", "file_index")
        columns = ["episode_index", "length", *(f"data/{name}" for name in at)]
        for key in self._video_keys:
            columns += [f"videos/{key}/{name}" for name in (*at, "from_timestamp")]
        for file in files:
            with reading(file):
                opened = self._opened(file)
                if opened.metadata.num_rows > _MOST_EPISODES:
                    raise ValueError(f"it has more than {_MOST_EPISODES} episodes")
                table = opened.read(columns=columns)
                absent = [name for name in columns if name not in table.column_names]
                if absent:
                    raise ValueError(f"it lacks the column {absent[0]}")
                for row in table.to_pylist():
                    data = _OF_V3.format(*(_count(row, f"data/{name}") for name in at))
                    videos = {}
                    for key in self._video_keys:
                        place = "chunk-{:03d}/file-{:03d}.mp4".format(
                            *(_count(row, f"videos/{key}/{name}") for name in at)
                        )
                        begin = float(row[f"videos/{key}/from_timestamp"])
                        if not 0 <= begin < math.inf:
                            raise ValueError(f"a video begins at {begin} s")
                        videos[key] = f"videos/{key}/{place}", begin
                    yield _Episode(
                        _count(row, "episode_index"), _count(row, "length"), f"data/{data}", videos
                    )

    @property
    def _video_keys(self) -> list[str]:
        return [key for key in self.specs if self._dtypes[key] == "video"]

    def _splits(self, info: _Info) -> dict[str, list[int]]:
        """Places of the episodes of each split, such as "0:90"; none where nothing is held out."""
        found: dict[str, list[int]] = {"train": [], "valid": []}
        order = {one.number: place for place, one in enumerate(self._episodes)}
        for name, keys in _SPLITS.items():
            for key in keys:
                first, colon, last = str(info.splits.get(key, "")).partition(":")
                if colon and first.isdecimal() and last.isdecimal():
                    inside = range(int(first), int(last))
                    found[name] += [order[index] for index in order if index in inside]
        return found if found["valid"] else {"train": [], "valid": []}

    def _of_training_lerobot(self, facts: dict[str, Any]) -> None:
        """What the exporter of this package adds: environment, seeds and split."""
        env_id, settings = facts.get("env_id"), facts.get("env")
        if isinstance(env_id, str) and isinstance(settings, dict):
            self.recorded_in = RecordedIn(env_id, settings)
        numbers, valid, seed = (facts.get(key) for key in ("episodes", "valid", "seed"))
        if not isinstance(numbers, list) or len(numbers) != len(self._episodes):
            return
        if type(seed) is int and all(type(number) is int for number in numbers):
            self.seeds = [seed + number for number in numbers]
        if isinstance(valid, list):
            held_out = [i for i, number in enumerate(numbers) if f"demo_{number}" in valid]
            train = [i for i in range(len(numbers)) if i not in set(held_out)]
            self._masks = {"train": train, "valid": held_out}

    # --- rows ---

    def read(self, episode: int, key: str, steps: slice = ALL) -> NDArray[Any]:
        """See `Source`; images are (steps, height, width, channels)."""
        where = self._episodes[episode]
        wanted = range(where.length)[steps]
        spec, dtype = self.specs[key], self._dtypes[key]
        file = self.path / where.file
        with reading(file):
            first = self._first_row(where)
            if dtype not in _IMAGES:
                column = self._column(where.file, key)
                return column[first : first + where.length][steps].reshape(-1, *spec.shape)
            if dtype == "image":
                return self._images(where, key, first, wanted)
            times = self._column(where.file, "timestamp")[first : first + where.length]
            times = times.astype(np.float64).reshape(-1)
            steady = np.abs(np.diff(times) * (self.rate_hz or 1) - 1)
            if len(times) > 1 and not float(steady.max()) <= 0.01:
                raise ValueError(
                    f"the times of episode {where.number} are not {1 / (self.rate_hz or 1):g} s "
                    "apart"
                )
        place, begin = where.videos[key]
        path = self.path / place
        with reading(path):
            check_regular(inside(self.path, place))
            return decoded(path, begin + times[list(wanted)], spec)

    def _first_row(self, where: _Episode) -> int:
        """The row of a file at which an episode begins."""
        numbers = self._column(where.file, "episode_index").reshape(-1)
        rows = np.flatnonzero(numbers == where.number)
        if len(rows) != where.length or rows[-1] - rows[0] + 1 != where.length:
            raise ValueError(
                f"episode {where.number} has {len(rows)} rows, where meta says {where.length}"
            )
        return int(rows[0])

    def _opened(self, path: Path) -> Any:
        from pyarrow import parquet

        check_regular(inside(self.path, str(path.relative_to(self.path))))
        return parquet.ParquetFile(path)

    def _whole_column(self, file: str, key: str) -> NDArray[Any]:
        """A column of numbers, (rows, ...); the last ones read stay in memory."""
        opened = self._opened(self.path / file)
        if key not in opened.schema_arrow.names:
            raise ValueError(f"it lacks the column {key}")
        width = self.specs[key].nbytes if key in self.specs else 8
        if opened.metadata.num_rows * width > _MOST_BYTES:
            raise ValueError(f"its column {key} has more than {_MOST_BYTES} bytes")
        _check_packed(opened, key)
        column = opened.read(columns=[key]).column(key).combine_chunks()
        rows = len(column)
        while hasattr(column, "flatten") and _is_list(column.type):
            if column.null_count:
                raise ValueError(f"its column {key} has empty rows")
            column = column.flatten()
        if column.null_count:
            raise ValueError(f"its column {key} has missing numbers")
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        shape = self.specs[key].shape if key in self.specs else (1,)
        if values.dtype.kind not in "biuf" or values.size != rows * math.prod(shape):
            raise ValueError(f"its column {key} holds other numbers than {shape} a row")
        return values.reshape(rows, *shape)

    def _images(self, where: _Episode, key: str, first: int, wanted: range) -> NDArray[Any]:
        """Images that rows hold, read a few rows at a time."""
        spec, rows = self.specs[key], {first + step: i for i, step in enumerate(wanted)}
        out = np.empty((len(wanted), *spec.shape), np.uint8)
        opened = self._opened(self.path / where.file)
        groups, begin, at = [], 0, None
        for i in range(opened.num_row_groups):
            end = begin + opened.metadata.row_group(i).num_rows
            if rows and begin <= max(rows) and end > min(rows):
                groups.append(i)
                at = begin if at is None else at
            begin = end
        row = at or 0
        _check_packed(opened, key)
        batches = opened.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=[key])
        for batch in batches if rows else ():
            for cell in batch.column(0):
                if row in rows:
                    out[rows.pop(row)] = _image(cell.as_py(), spec, key)
                row += 1
            if not rows:
                return out
        raise ValueError(f"it ends before row {min(rows)}")


def _spec(feature: _Feature) -> ArraySpec:
    """Images as (height, width, channels) of uint8; other arrays unchanged."""
    if feature.dtype not in _IMAGES:
        return ArraySpec(feature.shape, feature.dtype)
    shape, names = feature.shape, feature.names
    if len(shape) != 3:
        raise ValueError(f"an image has the shape {list(shape)}, where three axes are needed")
    named = [str(name) for name in names] if isinstance(names, list) else []
    channels_first = named[:1] in (["channels"], ["channel"]) or (
        not named and shape[0] <= 4 < shape[-1]
    )
    return ArraySpec((*shape[1:], shape[0]) if channels_first else shape, "uint8")


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _check_packed(opened: Any, key: str) -> None:
    """ValueError for a column that unpacks to more than is read at once."""
    for group in range(opened.num_row_groups):
        facts = opened.metadata.row_group(group)
        for i in range(facts.num_columns):
            column = facts.column(i)
            own = column.path_in_schema == key or column.path_in_schema.startswith(f"{key}.")
            if own and column.total_uncompressed_size > _MOST_BYTES:
                raise ValueError(f"its column {key} has more than {_MOST_BYTES} bytes in a group")


def _count(row: Any, key: str) -> int:
    value = row.get(key) if isinstance(row, dict) else None
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError(f"{key} of an episode is {value!r}, where a count is needed")
    return value


def _image(cell: Any, spec: ArraySpec, key: str) -> NDArray[np.uint8]:
    """The pixels of a packed image, whose size is compared before they are unpacked."""
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(data, bytes):
        raise ValueError(f"{key} holds no image in its rows")
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        height, width, channels = spec.shape
        if image.size != (width, height):
            raise ValueError(
                f"an image of {key} has {image.size[1]} x {image.size[0]} pixels, where info.json "
                f"says {height} x {width}"
            )
        pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}.get(channels, "RGB")))
        return pixels.reshape(spec.shape)


def decoded(path: Path, times_s: NDArray[np.float64], spec: ArraySpec) -> NDArray[np.uint8]:
    """Frames of a video at these times, which rise, (times, height, width, 3).

    Raises:
        ValueError: for a time without a frame, and for frames of another size.
    """
    import av

    height, width, channels = spec.shape
    if channels != 3:
        raise ValueError(f"its frames have {channels} channels, where a video has 3")
    out = np.empty((len(times_s), height, width, 3), np.uint8)
    distance = np.full(len(times_s), np.inf)
    # References to other files are FFmpeg's to follow only where these options say so.
    options = {"enable_drefs": "0", "use_absolute_path": "0", "protocol_whitelist": "file"}
    with av.open(str(path), format="mp4", options=options) as container:
        if not container.streams.video:
            raise ValueError("it has no video")
        stream = container.streams.video[0]
        stream.codec_context.options = {"max_pixels": str(max(2**16, 2 * height * width))}
        # One thread: those of FFmpeg may wait for the interpreter's lock to log, and whoever frees
        # the decoder holds it and waits for them.
        stream.codec_context.thread_count = 1
        if not len(times_s):
            return out
        if stream.time_base is None:
            raise ValueError("its video has no unit of time")
        seek = max(0.0, float(times_s[0]) - TOLERANCE_S)
        container.seek(int(seek / stream.time_base), stream=stream)
        for count, frame in enumerate(container.decode(stream)):
            if count > _MOST_FRAMES + 100 * len(times_s):
                raise ValueError("it has far more frames than rows")
            if (frame.height, frame.width) != (height, width):
                raise ValueError(
                    f"a frame has {frame.height} x {frame.width} pixels, where info.json says "
                    f"{height} x {width}"
                )
            time = frame.time
            if time is None:
                continue
            away = np.abs(times_s - time)
            near = int(away.argmin())
            if away[near] < min(distance[near], TOLERANCE_S):
                out[near] = frame.to_ndarray(format="rgb24")
            np.minimum(distance, away, out=distance)
            if time > times_s[-1] + TOLERANCE_S:
                break
    worst = int(distance.argmax())
    if not distance[worst] < TOLERANCE_S:
        raise ValueError(
            f"it has no frame within {TOLERANCE_S} s of {times_s[worst]:.4f} s; the nearest is "
            f"{distance[worst]:.4g} s away"
        )
    return out
