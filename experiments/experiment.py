"""An experiment as a whole: what is missing is made, then the table and the page are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.config import ExperimentConfig
from experiments.page import render, table
from experiments.registry import task
from experiments.summary import summarise
from experiments.trial import Trial, trials
from training.command.command_lines import command_line
from training.command.files import lock, write_atomically, writing
from training.compare.schedule import make
from training.io import config as configuration
from training.io.config import UserError

__all__ = ["check_directory", "command_of", "run_experiment", "write_record"]

CONFIG, PAGE, TABLE = "experiment.yaml", "report.html", "table.csv"


def check_directory(out: Path, experiment: ExperimentConfig) -> None:
    """UserError when the directory belongs to something else."""
    saved = out / CONFIG
    if saved.is_file():
        there = configuration.read_yaml(saved).get("title")
        if there != experiment.title:
            raise UserError(f"{out} holds another experiment, {there!r}: give another --out")
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} holds something that is no experiment: give another --out")


def command_of(
    name: str, overrides: Sequence[str], quick: bool, arms: Sequence[str] = ()
) -> str:  # fmt: skip
    """What runs it, as a shell takes it."""
    words = [name, *(["--quick"] if quick else []), *(["--set", *overrides] if overrides else [])]
    words += ["--arms", *arms] if arms else []
    return command_line("experiments", *words)


def run_experiment(
    experiment: ExperimentConfig, path: Path, out: Path, command: str, quick: bool = False,
    data: str | None = None, page_alone: bool = False,
) -> int:  # fmt: skip
    """Make what is not there yet, or the page alone; the exit status, 2 where parts failed.

    Args:
        experiment: as it is resolved.
        path: its file.
        out: its directory.
        command: that runs it, for the page.
        quick: with the settings of --quick.
        data: folder with the data.
        page_alone: write the page from what is there.

    Raises:
        UserError: a configuration is bad, data are missing, or the directory is another's.
    """
    parts = _parts(experiment, out, path, quick, data)
    if not page_alone:
        _check(experiment, parts, data)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    with lock(out):
        text = configuration.to_yaml(configuration.dump(experiment), "This experiment, resolved.")
        write_atomically(out / CONFIG, text.encode())

        def write(missing: Sequence[str], failed: Sequence[str] = ()) -> None:
            _write(experiment, out, parts, command, missing, failed)

        if page_alone:
            write(_missing(parts))
            return 0
        failures = make(parts, write, experiment.parallel)
    if failures.reasons:
        print(f"{len(failures.reasons)} parts failed, {out / PAGE} lists them", flush=True)
        return 2
    print(f"done: {out / PAGE}")
    return 0


def _parts(
    experiment: ExperimentConfig, out: Path, path: Path, quick: bool, data: str | None = None
) -> list[Trial]:
    """All trials. UserError where one is there that would be made otherwise now."""
    parts = trials(experiment, out, path, quick, data)
    for part in parts:
        part.check()
    return parts


def _missing(parts: Sequence[Trial]) -> list[str]:
    return [part.label for part in parts if not part.done()]


def _check(experiment: ExperimentConfig, parts: Sequence[Trial], data: str | None) -> None:
    """UserError where the data of what is missing are not there, or an arm cannot be built."""
    seen = set()
    for part in parts:
        if not part.done() and part.arm.name not in seen:
            seen.add(part.arm.name)
            try:
                task(experiment.task).check(part.settings, data)
            except UserError:
                raise
            except ValueError as error:
                raise UserError(f"arm {part.arm.name}: {error}") from None


def _write(
    experiment: ExperimentConfig, out: Path, parts: Sequence[Trial], command: str,
    missing: Sequence[str], failed: Sequence[str] = (),
) -> None:  # fmt: skip
    summary = summarise(experiment, parts)
    page = render(experiment, summary, command, parts, missing, failed)
    write_atomically(out / TABLE, table(summary).encode())
    write_atomically(out / PAGE, page.encode())


def write_record(
    experiment: ExperimentConfig, path: Path, out: Path, command: str, quick: bool, record: Path
) -> int:
    """Write table and page of what is in `out` into another directory, to be kept.

    UserError where nothing is done there, or was made otherwise.
    """
    parts = _parts(experiment, out, path, quick)
    missing = _missing(parts)
    if len(missing) == len(parts):
        raise UserError(f"--record keeps what is in {out}, and nothing is done there")
    with writing(record):
        record.mkdir(parents=True, exist_ok=True)
        _write(experiment, record, parts, command, missing)
    print(f"wrote {record}")
    return 0
