"""The run directory: provenance, resolved configuration, metrics.csv, curves, progress."""

import csv
import io
import json
import math
import os
import platform
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from training.command.errors import UserError, option
from training.command.files import (
    CONFIG,
    METRICS,
    PROVENANCE,
    append,
    check_regular,
    lock,
    read_bytes,
    reason,
    sync_directory,
    write_atomically,
    write_json,
    writing,
)
from training.command.progress import ProgressBar
from training.io.checkpoint import CHECKPOINTS
from training.io.fingerprint import sha256_of, version_of
from training.io.state_files import State, plain_json, read_json
from training.io.trackers import Tracking
from training.io.yaml_text import to_yaml


@dataclass(frozen=True, config=State)
class Git:
    """The version of the source code."""

    commit: str = "unknown"
    modified: bool = False


@dataclass(frozen=True, config=State)
class Resumed:
    """The fields that are read of a resumption of a run."""

    git: Git | None = None


@dataclass(frozen=True, config=State)
class Provenance:
    """The fields that are read of the provenance of results."""

    git: Git | None = None
    python: str = ""
    versions: dict[str, str | None] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    resumed: tuple[Resumed, ...] = ()


_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = (
    "foveate", "torch", "numpy", "gymnasium", "pybullet", "daqp", "numba", "ray",
    "safetensors", "pydantic", "stable-baselines3",
)  # fmt: skip


def new_directory(env_id: str) -> Path:
    """The default place of a run: runs/<env>-<local time to the microsecond>."""
    name = env_id.split(":")[-1].split("/")[-1].lower()
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S-%f}"


def create(directory: Path, config: dict[str, Any]) -> None:
    """Make a run directory; raises UserError if it is not writable or holds another run.

    A directory whose run was killed before writing its configuration counts as empty.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with lock(directory):
            taken = [name for name in (CONFIG, METRICS) if (directory / name).exists()]
            if any((directory / CHECKPOINTS).glob("*")):
                taken.append(CHECKPOINTS)
            if taken:
                raise UserError(
                    f"{directory} holds another run ({taken[0]}): continue it with "
                    f"{option('--resume', directory)}, or give another directory"
                )
            (directory / CHECKPOINTS).mkdir(exist_ok=True)
            write_json(directory / PROVENANCE, provenance(config))
            write_config(directory, config)
    except OSError as error:
        raise UserError(f"cannot write the run directory {directory}: {error.strerror}") from None


def record_resume(directory: Path, iteration: int, config: dict[str, Any]) -> None:
    """Record in a run's provenance the iteration and configuration it resumes with."""
    try:
        read_json(Provenance, directory / PROVENANCE)
        facts = plain_json(read_bytes(directory / PROVENANCE))
        facts.setdefault("resumed", []).append({"iteration": iteration, **provenance(config)})
        write_json(directory / PROVENANCE, facts)
        write_config(directory, config)
        (directory / CHECKPOINTS).mkdir(exist_ok=True)
        for left_over in (directory / CHECKPOINTS).glob(".*.safetensors.*"):
            left_over.unlink()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot continue the run in {directory}: {error}") from None


def write_config(directory: Path, config: dict[str, Any]) -> None:
    """Write config.yaml. Raises OSError."""
    text = to_yaml(config, "Resolved configuration of this run, every default filled in.")
    write_atomically(directory / CONFIG, text.encode())


def provenance(config: dict[str, Any]) -> dict[str, Any]:
    """The provenance of results: code, versions, seeds, hardware, configuration hash, command."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "git": _git(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in _PACKAGES},
        "seed": config.get("seed"),
        "config_sha256": sha256_of([json.dumps(config, sort_keys=True).encode()]),
        "hardware": {
            "platform": platform.platform(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1),
        },
    }


def _command() -> list[str]:
    """The command line without the program's location on this machine."""
    program = Path(sys.argv[0])
    if program.suffix == ".py" and program.is_relative_to(_ROOT):
        module = ".".join(program.relative_to(_ROOT).with_suffix("").parts)
        return ["python", "-m", module, *sys.argv[1:]]
    return [program.name, *sys.argv[1:]]


def _git() -> dict[str, Any] | None:
    """Commit of the source tree, and whether it differs; None for an installed package."""
    if not (_ROOT / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        words = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "modified": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())


def has_rows(directory: Path) -> bool:
    """Whether a run has logged an iteration; a file that cannot be read is `RunLog`'s to report."""
    try:
        return len(read_bytes(directory / METRICS).splitlines()) > 1
    except OSError:
        return False


def check_rows(directory: Path, iteration: int) -> None:
    """UserError unless metrics.csv holds the rows of all iterations to this one, in their order."""
    path = directory / METRICS
    try:
        _rows_until(iteration, read_bytes(path) if path.exists() else b"", path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None


def _rows_until(iteration: int, metrics: bytes, path: Path) -> list[bytes]:
    """The heading of a metrics.csv, b"" if it is incomplete, and the rows of iterations 1, 2, 3 ...
    to this one; raises UserError if one is left out, out of order or damaged."""
    heading, *lines = metrics.splitlines(keepends=True) or [b""]
    if not (heading.startswith(b"iteration,") and heading.endswith(b"\n")):
        heading, lines = b"", []
    width, due = heading.count(b",") + 1, count(1)
    rows = [*takewhile(lambda line: _iteration(line, width) == next(due), lines[:iteration])]
    if len(rows) < iteration:
        there = f"only those of the first {len(rows)}" if rows else "none"
        raise UserError(
            f"{path} must hold a whole row of each of the first {iteration} iterations, in their "
            f"order, but holds {there}"
        )
    return [heading, *rows]


def _iteration(line: bytes, width: int) -> float:
    """The iteration of a row with this number of cells; NaN for a damaged row."""
    try:
        cells = [float(cell) for cell in line.split(b",")]
    except ValueError:
        return math.nan
    return cells[0] if line.endswith(b"\n") and len(cells) == width else math.nan


class Board:
    """Curves for TensorBoard: an event file of a run directory.

    PyTorch's SummaryWriter writes in a separate thread, which prints a traceback and ends when the
    disk is full. Here each row has been written when `add` returns, or an error is raised. The
    format is TensorBoard's: length, its checksum, an `Event` message, its checksum.

    Args:
        directory: the run's.
        iteration: the one the run resumes from; later rows of earlier files are hidden.

    Raises:
        UserError: if it cannot be written, here and in every method.
    """

    def __init__(self, directory: Path, iteration: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's own imports
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        self._events, self._summaries, self._record = event_pb2, summary_pb2, RecordWriter
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self.path = directory / name
        with writing(self.path):
            self._file = self.path.open("xb", buffering=0)
        try:
            self._write(file_version="brain.Event:2")
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=iteration + 1, session_log=start)
        except UserError:
            self.close()
            raise

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Add one point to each named curve; numbers that are not finite are omitted."""
        summary = self._summaries.Summary()
        for name, value in values.items():
            if math.isfinite(value):
                summary.value.add(tag=name, simple_value=value)
        self._write(step=step, summary=summary)

    def _write(self, **event: Any) -> None:
        message = self._events.Event(wall_time=time.time(), **event)
        record = io.BytesIO()
        self._record(record).write(message.SerializeToString())
        with writing(self.path):
            append(self._file, record.getvalue())

    def close(self) -> None:
        """Release the file."""
        self._file.close()


class RunLog:
    """Logs one row per iteration to metrics.csv, TensorBoard, a tracker and a progress bar.

    A row is on the disk when `row` returns, before its iteration's checkpoint is written. Rows
    after `iteration` (the checkpoint that a run resumes from) are dropped from metrics.csv and
    hidden in TensorBoard; raises UserError if one before it is missing or damaged. The remaining
    rows that the tracker lacks are sent to it. `last` is the last row kept, as text by column, {}
    at the start."""

    def __init__(
        self, directory: Path, columns: tuple[str, ...], *, iteration: int, total: int,
        tracking: Tracking | None = None,
    ) -> None:  # fmt: skip
        self.columns, self._path, self._tracking = columns, directory / METRICS, tracking
        with writing(self._path):
            if self._path.exists():
                check_regular(self._path)
            self._file = self._path.open("a+b", buffering=0)
        try:
            with writing(self._path):
                sync_directory(directory)
                rows = self._keep_until(iteration)
            self.last = rows[-1] if rows else {}
            self._board = Board(directory, iteration)
        except UserError:
            self._file.close()
            raise
        if tracking is not None:
            read = ({name: float(cell) for name, cell in row.items()} for row in rows)
            tracking.begin([(int(row["iteration"]), _curves(row)) for row in read])
        self._bar = ProgressBar(total=total, initial=iteration, unit="it")

    def _keep_until(self, iteration: int) -> list[dict[str, str]]:
        self._file.seek(0)
        data, heading, path = self._file.read(), self._line(self.columns), self._path
        first = next(iter(data.splitlines(keepends=True)), b"").rstrip(b"\0")
        if not heading.startswith(first):
            raise UserError(
                f"{path} has columns {first.decode(errors='replace').strip()}, but this program "
                f"writes {heading.decode().strip()}"
            )
        kept = _rows_until(iteration, data, path)
        self._file.truncate(sum(map(len, kept)))
        if not kept[0]:
            append(self._file, heading)
        os.fsync(self._file.fileno())
        cells = csv.reader(line.decode() for line in kept[1:])
        return [dict(zip(self.columns, row, strict=True)) for row in cells]

    @staticmethod
    def _line(cells: Any) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        return text.getvalue().encode()

    def row(self, values: dict[str, float], summary: str) -> None:
        """Log one iteration: `values` has exactly the columns; the bar shows `summary`."""
        assert tuple(values) == self.columns, f"{tuple(values)} != {self.columns}"
        with writing(self._path):
            append(self._file, self._line(values.values()))
            os.fsync(self._file.fileno())
        curves, step = _curves(values), int(values["iteration"])
        self._board.add(curves, step)
        if self._tracking is not None:
            self._tracking.add(curves, step)
        self._bar.set_postfix_str(summary, refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Flush and release everything."""
        self._bar.close()
        self._board.close()
        self._file.close()
        if self._tracking is not None:
            self._tracking.close()


def _curves(row: dict[str, float]) -> dict[str, float]:
    """The values of a row that are plotted, by the names of their curves."""
    return {f"train/{name}": value for name, value in row.items() if name != "iteration"}
