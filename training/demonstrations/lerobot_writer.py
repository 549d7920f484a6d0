"""Writing a LeRobotDataset of format v3.0, an episode at a time (extra `lerobot`).

The layout is that of https://github.com/huggingface/lerobot (release 0.4):

    DIR/meta/info.json                               features, rates, counts
    DIR/meta/stats.json                              statistics of each feature
    DIR/meta/tasks.parquet                           task_index by task
    DIR/meta/episodes/chunk-000/file-000.parquet     an episode a row: where its frames are
    DIR/data/chunk-000/file-000.parquet              a frame a row; images are PNG bytes in it

Images (height, width, 3) of uint8 are images there; all other arrays keep their type, depth in
metres too. Only the current episode is kept in memory."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image

import foveate_extras
from policies.common.observation import flat
from training.command.files import write_json
from training.demonstrations.format import BOX_KEY, ArraySpec
from training.io.config import UserError

CODEBASE_VERSION = "v3.0"
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_DATA, _EPISODES = f"data/{_FILE}", f"meta/episodes/{_FILE}"
_FILES_A_CHUNK, _FILE_MB = 1000, 100
_MOST_DIMENSIONS = 5
_SCALARS = {
    "next.reward": "float64", "next.done": "bool", "next.success": "bool", "timestamp": "float32",
    "frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64",
}  # fmt: skip


def feature_names(observation: Mapping[str, ArraySpec]) -> dict[str, str]:
    """LeRobot's names of the parts of an observation; the only vector is the state."""
    vectors = [key for key, spec in observation.items() if len(spec.shape) == 1]
    names = {key: f"observation.{'images.' * _is_image(s)}{key}" for key, s in observation.items()}
    if len(vectors) == 1:
        names[vectors[0]] = "observation.state"
    elif set(observation) == {BOX_KEY} and not _is_image(observation[BOX_KEY]):
        names[BOX_KEY] = "observation.environment_state"
    return names


def action_spec(space: gymnasium.Space[Any]) -> ArraySpec:
    """UserError for actions that are not one array of numbers."""
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return ArraySpec.of(space)
    raise UserError(f"actions are {space}, but a dataset holds one array of numbers as an action")


def _is_image(spec: ArraySpec) -> bool:
    return len(spec.shape) == 3 and spec.shape[-1] == 3 and spec.dtype == "uint8"


def _column_type(spec: ArraySpec, name: str) -> tuple[list[int], str]:
    """LeRobot's shape and type of an array; raises UserError for an array that it cannot hold."""
    if _is_image(spec):
        return [*spec.shape], "image"
    if len(spec.shape) > _MOST_DIMENSIONS or 0 in spec.shape:
        raise UserError(
            f"{name} has shape {list(spec.shape)}, where LeRobot has 1 to {_MOST_DIMENSIONS} "
            "dimensions, none of them empty"
        )
    return [*spec.shape] or [1], spec.dtype


@dataclass(frozen=True)
class Moments:
    """Elementwise statistics, which can be merged (Chan, Golub, LeVeque 1979)."""

    count: int
    """Frames."""
    weight: int
    """Number of values per element: frames, or pixels of all frames per channel."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sum of squared distances to the mean."""

    @classmethod
    def of(cls, values: NDArray[Any], frames: int | None = None) -> "Moments":
        """Statistics of an array (values, ...); default of `frames`: a frame a value."""
        x = np.asarray(values, np.float64)
        mean, count = x.mean(0), len(x) if frames is None else frames
        return cls(count, len(x), x.min(0), x.max(0), mean, ((x - mean) ** 2).sum(0))

    def __add__(self, other: "Moments") -> "Moments":
        total = self.weight + other.weight
        apart = other.mean - self.mean
        return Moments(
            self.count + other.count,
            total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + apart * (other.weight / total),
            self.squares + other.squares + apart**2 * (self.weight * other.weight / total),
        )

    def as_json(self) -> dict[str, Any]:
        """The statistics in LeRobot's format."""
        deviation = np.sqrt(self.squares / self.weight)
        numbers = {"min": self.low, "max": self.high, "mean": self.mean, "std": deviation}
        return {name: part.tolist() for name, part in numbers.items()} | {"count": [self.count]}


class DatasetWriter:
    """Writes the steps of one episode after the other.

    Args:
        directory: an empty directory.
        observation: specifications of an observation's arrays, by key.
        action: specification of an action.
        fps: steps per second.
        task: description of the task of all episodes.
        metadata: further entries of info.json, under `foveate`.

    Raises:
        MissingExtraError: without pyarrow.
        UserError: for data that LeRobot has no column for.
    """

    def __init__(
        self, directory: Path, observation: Mapping[str, ArraySpec], action: ArraySpec, fps: float,
        task: str, metadata: Mapping[str, Any],
    ) -> None:  # fmt: skip
        foveate_extras.require("a LeRobotDataset", "lerobot", "pyarrow")
        import pyarrow
        from pyarrow import parquet

        self._arrow, self._parquet = pyarrow, parquet
        self._directory, self._fps, self._task = directory, fps, task
        self._metadata = dict(metadata)
        self._names = feature_names(observation)
        specs = {name: observation[key] for key, name in self._names.items()} | {"action": action}
        self._columns = {name: _column_type(spec, name) for name, spec in specs.items()}
        self._columns |= {name: ([1], dtype) for name, dtype in _SCALARS.items()}
        self._schema = pyarrow.schema([(name, self._type(*c)) for name, c in self._columns.items()])
        self._stats: dict[str, Moments] = {}
        self._episodes = self._frames = self._file = self._bytes = 0
        self._data: Any = None
        self._meta: Any = None
        self._begin()

    def _begin(self) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in self._columns}
        self._images: dict[str, Moments] = {}

    def add(self, observation: Any, action: Any, reward: float) -> None:
        """Add one step: the observation, the action taken, and the reward that followed."""
        parts = flat(observation)
        for key, name in self._names.items():
            value = np.asarray(parts[key])
            if self._columns[name][1] == "image":
                self._rows[name].append(_png(value))
                found = Moments.of(value.reshape(-1, 3, 1, 1) / 255, frames=1)  # of each channel
                known = self._images.get(name)
                self._images[name] = found if known is None else known + found
            else:
                self._rows[name].append(value.copy())
        self._rows["action"].append(np.array(action))
        self._rows["next.reward"].append(reward)

    def end_episode(self, success: bool) -> None:
        """Write the episode. Raises OSError."""
        rows: dict[str, Any] = self._rows
        steps = np.arange(len(rows["action"]))
        last = steps == len(steps) - 1
        rows |= {
            "next.done": last, "next.success": last & success, "timestamp": steps / self._fps,
            "frame_index": steps, "episode_index": np.full(len(steps), self._episodes),
            "index": self._frames + steps, "task_index": np.zeros(len(steps)),
        }  # fmt: skip
        stats, columns = dict(self._images), []
        for name, (shape, dtype) in self._columns.items():
            if dtype == "image":
                columns.append(self._arrow.array(rows[name], self._schema.field(name).type))
                continue
            values = np.asarray(rows[name], dtype).reshape(-1, *shape)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise UserError(
                    f"{name} holds numbers that are not finite in episode {self._episodes}; they "
                    "have no statistics, which LeRobot needs"
                )
            stats[name] = Moments.of(values)
            columns.append(self._column(values))
        self._write(self._arrow.table(columns, schema=self._schema), len(steps), stats)
        self._begin()

    def _write(self, table: Any, steps: int, stats: dict[str, Moments]) -> None:
        if self._data is not None and self._bytes + table.nbytes > _FILE_MB * 2**20:
            self._data.close()
            self._data, self._bytes, self._file = None, 0, self._file + 1
        chunk, file = divmod(self._file, _FILES_A_CHUNK)
        if self._data is None:
            self._data = self._writer(_DATA, chunk, file, self._schema)
        self._data.write_table(table)
        self._bytes += table.nbytes
        row = {
            "episode_index": self._episodes, "tasks": [self._task], "length": steps,
            "data/chunk_index": chunk, "data/file_index": file,
            "dataset_from_index": self._frames, "dataset_to_index": self._frames + steps,
            "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
        }  # fmt: skip
        for name, moments in stats.items():
            row |= {f"stats/{name}/{key}": value for key, value in moments.as_json().items()}
            self._stats[name] = moments + self._stats[name] if self._episodes else moments
        episode = self._arrow.Table.from_pylist([row])
        if self._meta is None:
            self._meta = self._writer(_EPISODES, 0, 0, episode.schema)
        self._meta.write_table(episode)
        self._episodes, self._frames = self._episodes + 1, self._frames + steps

    def _writer(self, name: str, chunk: int, file: int, schema: Any) -> Any:
        path = self._directory / name.format(chunk_index=chunk, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._parquet.ParquetWriter(path, schema)

    def _type(self, shape: list[int], dtype: str) -> Any:
        arrow = self._arrow
        if dtype == "image":
            return arrow.struct({"bytes": arrow.binary(), "path": arrow.string()})
        kind = arrow.from_numpy_dtype(np.dtype(dtype))
        if len(shape) == 1:
            return kind if shape == [1] else arrow.list_(kind, shape[0])
        for _ in shape:
            kind = arrow.list_(kind)
        return kind

    def _column(self, values: NDArray[Any]) -> Any:
        """(rows, ...) numbers as a column."""
        arrow, (rows, *shape) = self._arrow, values.shape
        column = arrow.array(values.reshape(-1))
        if shape == [1]:
            return column
        if len(shape) == 1:
            return arrow.FixedSizeListArray.from_arrays(column, shape[0])
        for size in reversed(shape):
            offsets = np.arange(0, len(column) + 1, size, dtype=np.int32)
            column = arrow.ListArray.from_arrays(offsets, column)
        assert len(column) == rows
        return column

    def close(self) -> None:
        """Write the metadata of all episodes. Raises OSError."""
        self._close_files()
        meta = self._directory / "meta"
        meta.mkdir(exist_ok=True)
        tasks = self._arrow.table({"task_index": [0], "task": [self._task]})
        tasks = tasks.replace_schema_metadata({"pandas": json.dumps(_INDEX)})
        self._parquet.write_table(tasks, meta / "tasks.parquet")
        stats = {name: moments.as_json() for name, moments in self._stats.items()}
        axes = ["height", "width", "channels"]
        write_json(meta / "stats.json", stats)
        info = {
            "codebase_version": CODEBASE_VERSION,
            "robot_type": None,
            "total_episodes": self._episodes,
            "total_frames": self._frames,
            "total_tasks": 1,
            "chunks_size": _FILES_A_CHUNK,
            "data_files_size_in_mb": _FILE_MB,
            "video_files_size_in_mb": 200,
            "fps": int(self._fps) if float(self._fps).is_integer() else self._fps,
            "splits": {"train": f"0:{self._episodes}"},
            "data_path": _DATA,
            "video_path": None,
            "features": {
                name: {"dtype": dtype, "shape": shape, "names": axes if dtype == "image" else None}
                for name, (shape, dtype) in self._columns.items()
            },
            "foveate": self._metadata,
        }
        write_json(meta / "info.json", info)

    def __enter__(self) -> Self:
        """Closes its files at the end of the block, also after an error."""
        return self

    def __exit__(self, *error: object) -> None:
        self._close_files()

    def _close_files(self) -> None:
        for writer in filter(None, (self._data, self._meta)):
            writer.close()
        self._data = self._meta = None


_INDEX = {
    "index_columns": ["task"],
    "column_indexes": [],
    "columns": [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64",
         "numpy_type": "int64", "metadata": None},
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object",
         "metadata": None},
    ],
}  # fmt: skip
"""The metadata that pandas writes for a table whose index is `task`."""


def _png(image: NDArray[np.uint8]) -> dict[str, Any]:
    """An image as LeRobot's readers unpack it, without loss."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}
