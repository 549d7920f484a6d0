"""A study as a whole: what is missing is made, then the page and the record are written."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from training.analysis.agents import check_device
from training.command.command_lines import command_line
from training.command.files import lock, write_atomically
from training.compare.charts import pareto_picture
from training.compare.config import StudyConfig
from training.compare.directory import (
    PAGE,
    PICTURE,
    STUDY,
    check_directory,
    clean,
    make_directory,
    write_config,
)
from training.compare.page import render
from training.compare.plan import all_runs, plan, told
from training.compare.record import pack, unpack
from training.compare.runs import Run, check_demonstrations, check_policies
from training.compare.schedule import Failures, Unit, chosen, make
from training.compare.summary import summarise
from training.demonstrations.request import parser
from training.demonstrations.request import plan as plan_recording
from training.demonstrations.session import record_all
from training.io import config as configuration
from training.io.config import UserError

__all__ = ["Page", "begin_with", "check_record", "command_of", "make_study", "write_record"]

FOLDERS = ("runs", "evaluations")


@dataclass(frozen=True)
class Page:
    """The page and its picture, and where they are written."""

    study: StudyConfig
    out: Path
    command: str
    runs: list[list[Run]] = field(repr=False)

    def write(self, missing: Sequence[str], failed: Sequence[str] = ()) -> bool:
        """Write it if that changes it, and say whether it did.

        Args:
            missing: what is not done yet.
            failed: what of it was tried, and why it failed.
        """
        runs = [run for stages in self.runs for run in stages]
        summary = summarise(self.study, self.out)
        page = render(self.study, self.out, summary, self.command, runs, missing, failed).encode()
        path = self.out / PAGE
        same = path.is_file() and path.read_bytes() == page
        if same and (self.out / PICTURE).is_file():
            return False
        picture = pareto_picture(self.study, summary)
        if same and picture is None:
            return False
        if picture is not None:
            write_atomically(self.out / PICTURE, picture)
        write_atomically(path, page)
        return True


def _unfinished(runs: list[list[Run]], now: Sequence[Unit]) -> list[list[Run]]:
    """The stages of a seed of every arm that has a run to make now."""
    arms: dict[str, list[Run]] = {}
    for stages in runs:
        if any(not run.done() and run in now for run in stages):
            arms.setdefault(stages[0].arm.name, stages)
    return list(arms.values())


def _record(study: StudyConfig) -> None:
    """Record what is cloned, as far as it is not there."""
    if study.demonstrations is not None:
        words = parser().parse_args(shlex.split(study.demonstrations))
        record_all(plan_recording(words), words.episodes, words.workers, words.valid_share)


def check_record(record: Path, study: StudyConfig, out: Path) -> None:
    """UserError where the record would be written over something else."""
    if record.resolve() == out.resolve() or any((record / n).exists() for n in FOLDERS):
        raise UserError(f"--record {record} is a study's own directory: give another one")
    check_directory(record, study, "--record")


def write_record(
    study: StudyConfig, path: Path, out: Path, overrides: Sequence[str], record: Path
) -> None:
    """The record of what is there, and the page as it is written from it."""
    runs = all_runs(study, path, out)
    pack(out, record, told(plan(study, out, runs), runs))
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / out.name
        unpack(record, unpacked)
        runs = all_runs(study, path, unpacked)
        missing = [unit.label for unit in plan(study, unpacked, runs) if not unit.done()]
        Page(study, unpacked, command_of(path, overrides), runs).write(missing)
        write_atomically(record / PAGE, (unpacked / PAGE).read_bytes())
        (record / PICTURE).unlink(missing_ok=True)  # of a record of before: the page shows it
    print(f"wrote {record}")


def begin_with(record: Path, study: StudyConfig, path: Path, out: Path) -> None:
    """Begin a directory with a record, where it is not begun yet. UserError when it cannot be."""
    if not (out / STUDY).is_file():
        check_directory(record, study, "--unpack")
        all_runs(study, path, out)
        unpack(record, out)
        if (out / STUDY).is_file():  # which no record of long ago has
            made, asked = configuration.read_yaml(out / STUDY).get("episodes"), study.episodes
            if made != asked:
                print(
                    f"note: evaluations of {record} have {made} episodes, {asked} are asked for, "
                    f"so they do not count; they do with --set episodes={made}"
                )


def command_of(
    path: Path, overrides: Sequence[str], out: Path | None = None, only: Sequence[str] = ()
) -> str:
    """What runs the study, as a shell takes it."""
    words = ["--config", str(path), *(["--out", str(out)] if out else [])]
    words += ["--only", *only] if only else []
    return command_line("training.study", *words, *(["--set", *overrides] if overrides else []))


def make_study(
    study: StudyConfig,
    path: Path,
    out: Path,
    overrides: Sequence[str],
    page_alone: bool,
    only: Sequence[str] = (),
) -> int:
    """Make what is not there yet, or the page alone; the exit status, 2 where parts failed.

    Args:
        study: as it is resolved.
        path: its file.
        out: its directory.
        overrides: of `--set`, for the command that is told.
        page_alone: write the page from what is there.
        only: words of the parts to make, with the runs that they need; empty: all parts.

    Raises:
        UserError: a configuration is bad, the directory is another's, or no part has a word.
    """
    check_device(study.device)
    check_directory(out, study)
    runs = all_runs(study, path, out)
    every = [run for stages in runs for run in stages]
    units = plan(study, out, runs)
    for unit in units:
        unit.check()
    for run in every:
        run.check_trained()
    check_demonstrations(every, begin=False)
    page = Page(study, out, command_of(path, overrides), runs)
    now = chosen(units, only) if only else units
    undone = [unit for unit in units if not unit.done()]
    missing = [unit.label for unit in undone]
    later = [unit.label for unit in undone if unit not in now]
    if page_alone or len(missing) == len(later):
        make_directory(out)
        if not (out / STUDY).is_file() or not missing:
            write_config(out, study)
        written = page.write(missing)
        print(f"{'wrote' if written else 'nothing to do; see'} {out / PAGE}")
        return 0
    unfinished = _unfinished(runs, now)
    for stages in unfinished:
        check_policies(stages, study.curves)
    make_directory(out)
    with lock(out):
        write_config(out, study)
        clean(out)
        if unfinished:
            _record(study)
            check_demonstrations(every, begin=True)
        failures = make(
            now, lambda missing, failed: page.write([*missing, *later], failed), study.parallel
        )
    command = command_of(path, overrides, out, only if failures.reasons else ())
    print(_told(out, failures, len(later), command), flush=True)
    return 2 if failures.reasons else 0


def _told(out: Path, failures: Failures, later: int, command: str) -> str:
    """The last line of a command: what came of it, and what goes on."""
    if failures.reasons:
        return (
            f"{len(failures.reasons)} parts failed, {out / PAGE} lists them; try them again with: "
            f"{command}"
        )
    if later:
        return f"{later} parts are left, {out / PAGE} lists them; make them with: {command}"
    return f"done: {out / PAGE}"
