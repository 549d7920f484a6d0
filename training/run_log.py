"""The run directory: provenance, resolved configuration, metrics.csv, TensorBoard, progress."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
import subprocess
import sys
from dataclasses import field
from datetime import UTC, datetime
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from training.board import Board
from training.checkpoint import CHECKPOINTS
from training.config import UserError, to_yaml
from training.files import lock, read_bytes, write_atomically
from training.state_files import State, read_json

__all__ = [
    "Provenance",
    "RunLog",
    "create",
    "has_rows",
    "new_directory",
    "provenance",
    "record_resume",
]

CONFIG, METRICS, PROVENANCE = "config.yaml", "metrics.csv", "provenance.json"


@dataclass(frozen=True, config=State)
class Git:
    """A state of the source."""

    commit: str = "unknown"
    modified: bool = False


@dataclass(frozen=True, config=State)
class Resumed:
    """A time that a run went on: what is read of it."""

    git: Git | None = None


@dataclass(frozen=True, config=State)
class Provenance:
    """Where results come from: what is read of it."""

    git: Git | None = None
    python: str = ""
    versions: dict[str, str | None] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    resumed: tuple[Resumed, ...] = ()


_PACKAGES = (
    "foveate", "torch", "numpy", "gymnasium", "pybullet", "quadprog", "ray", "evotorch",
    "safetensors", "pydantic",
)  # fmt: skip


def new_directory(env_id: str) -> Path:
    """The default place of a run: runs/<env>-<local time>."""
    name = env_id.split(":")[-1].split("/")[-1].lower()
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def create(directory: Path, config: dict[str, Any]) -> None:
    """Make a run directory; UserError when it is not writable or holds another run.

    One that was killed before its configuration was written holds none.
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
                    f"--resume {directory}, or give another directory"
                )
            (directory / CHECKPOINTS).mkdir(exist_ok=True)
            _write(directory, provenance(config), config)
    except OSError as error:
        raise UserError(f"cannot write the run directory {directory}: {error.strerror}") from None


def has_rows(directory: Path) -> bool:
    """Whether a run has logged an iteration; a file that cannot be read is `RunLog`'s to report."""
    try:
        return len((directory / METRICS).read_bytes().splitlines()) > 1
    except OSError:
        return False


def record_resume(directory: Path, iteration: int, config: dict[str, Any]) -> None:
    """Note in a run's provenance that it goes on from `iteration`, under which configuration."""
    try:
        read_json(Provenance, directory / PROVENANCE)
        facts = json.loads(read_bytes(directory / PROVENANCE))
        facts.setdefault("resumed", []).append({"iteration": iteration, **provenance(config)})
        _write(directory, facts, config)
        (directory / CHECKPOINTS).mkdir(exist_ok=True)
        for left_over in (directory / CHECKPOINTS).glob(".*.safetensors.*"):
            left_over.unlink()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot continue the run in {directory}: {error}") from None


def _write(directory: Path, facts: dict[str, Any], config: dict[str, Any]) -> None:
    text = to_yaml(config, "Resolved configuration of this run, every default filled in.")
    write_atomically(directory / PROVENANCE, (json.dumps(facts, indent=1) + "\n").encode())
    write_atomically(directory / CONFIG, text.encode())


def provenance(config: dict[str, Any]) -> dict[str, Any]:
    """Where results come from: code, versions, seeds, hardware, configuration hash, command."""
    canonical = json.dumps(config, sort_keys=True).encode()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "git": _git(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "seed": config.get("seed"),
        "config_sha256": hashlib.sha256(canonical).hexdigest(),
        "hardware": {
            "platform": platform.platform(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_gib": round(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
            ),
        },
    }


def _command() -> list[str]:
    """The command line, without where on this machine the program lies."""
    program, root = Path(sys.argv[0]), Path(__file__).resolve().parents[1]
    if program.suffix == ".py" and program.is_relative_to(root):
        module = ".".join(program.relative_to(root).with_suffix("").parts)
        return ["python", "-m", module, *sys.argv[1:]]
    return [program.name, *sys.argv[1:]]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    """Commit of the source tree, and whether it differs; None for an installed package."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

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


class RunLog:
    """One row an iteration, to metrics.csv, TensorBoard and a progress bar.

    Rows after `iteration` (the checkpoint that a run goes on from) are dropped from metrics.csv
    and hidden in TensorBoard; so is from the former what a crash left damaged, and all after it.
    `last` is the last row kept, as text by column, {} at the start.
    """

    def __init__(
        self, directory: Path, columns: tuple[str, ...], *, iteration: int, total: int
    ) -> None:
        self.columns = columns
        try:
            self._file = open(directory / METRICS, "a+b")  # noqa: SIM115 - closed in close()
        except OSError as error:
            raise UserError(f"cannot write {directory / METRICS}: {error.strerror}") from None
        try:
            self.last = self._keep_until(iteration)
            self._board = Board(directory, iteration)
        except (UserError, OSError):
            self._file.close()
            raise
        from tqdm import tqdm

        seconds = 0.2 if sys.stderr.isatty() else 20.0
        self._bar = tqdm(
            total=total, initial=iteration, unit="it", mininterval=seconds, dynamic_ncols=True
        )

    def _keep_until(self, iteration: int) -> dict[str, str]:
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        header = self._line(self.columns)
        if not lines or lines[0] != header:
            if lines and not header.startswith(lines[0]):
                raise UserError(
                    f"{self._file.name} has columns {lines[0].decode(errors='replace').strip()}, "
                    f"but this program writes {header.decode().strip()}"
                )
            self._file.truncate(0)
            self._file.write(header)
            self._file.flush()
            return {}
        kept = list(takewhile(lambda line: self._iteration(line) <= iteration, lines[1:]))
        self._file.truncate(len(header) + sum(map(len, kept)))
        last = next(csv.reader([kept[-1].decode()])) if kept else []
        return dict(zip(self.columns, last, strict=False))

    def _iteration(self, line: bytes) -> float:
        """Which one a row is of; infinity for a row that is damaged."""
        try:
            cells = [float(cell) for cell in line.split(b",")]
        except ValueError:
            return math.inf
        return cells[0] if line.endswith(b"\n") and len(cells) == len(self.columns) else math.inf

    @staticmethod
    def _line(cells: Any) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        return text.getvalue().encode()

    def row(self, values: dict[str, float], summary: str) -> None:
        """Log one iteration: `values` has exactly the columns; the bar shows `summary`."""
        assert tuple(values) == self.columns, f"{tuple(values)} != {self.columns}"
        self._file.write(self._line(values.values()))
        self._file.flush()
        curves = {f"train/{name}": value for name, value in values.items() if name != "iteration"}
        self._board.add(curves, int(values["iteration"]))
        self._bar.set_postfix_str(summary, refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Flush and release everything."""
        self._bar.close()
        self._board.close()
        self._file.close()
