"""Train arms alike over several seeds, evaluate them on the same scenes, and write one page.

python -m training.study --config configs/studies/stepping_stones.yaml

Everything lands in one directory, unit by unit: a run, an evaluation, a video. What is there is
not made again, so the same command goes on after any interruption, and does nothing when all is
done. The page is written anew as units are done, and says what is missing.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from training import checkpoint, demos, run_log, study_page
from training import config as configuration
from training.config import ArgumentParser, UserError, exit_status
from training.players import check_device
from training.study_config import CurveConfig, StudyConfig, load_config, study_file
from training.study_measures import Conditions, Costs, Film
from training.study_runs import Run, StoppedError, prepare, runs_of

__all__ = ["load_config", "main"]

STUDY, PAGE = "study.yaml", "report.html"
PAGE_EVERY_S = 30.0
"""The page is written after a unit that ends this long after the last time, or later."""


class Unit(Protocol):
    """Something that a study makes once."""

    @property
    def label(self) -> str:
        """What is printed before it."""

    def done(self) -> bool:
        """Whether it is there."""

    def check(self) -> None:
        """UserError when something is there that the study would not make now."""

    def do(self) -> None:
        """Make it, or what of it is missing."""


def all_runs(study: StudyConfig, path: Path, out: Path) -> list[list[Run]]:
    """The stages of every seed and arm, seeds outermost; UserError when a configuration is bad."""
    pairs = [(seed, arm) for seed in study.seeds for arm in study.arms]
    return [runs_of(study, path, out, arm, seed) for seed, arm in pairs]


def plan(study: StudyConfig, out: Path, runs: list[list[Run]]) -> list[Unit]:
    """All units in their order: all arms have one seed, before any has two."""
    first = [stages[-1] for stages in runs[: len(study.arms)]]
    base = next(run for run in first if run.arm.name == study.baseline)

    def evaluated(run: Run, curve: CurveConfig | None = None) -> Conditions:
        job, name = run.job, run.directory.name
        return Conditions(study, out, name, job.env_id, job.env, run.directory, curve)

    def scripted(curve: CurveConfig | None = None) -> list[Conditions]:
        job = base.job  # they walk with the baseline's robot
        names = study.references
        return [Conditions(study, out, n, job.env_id, job.env, None, curve) for n in names]

    films = study.videos and _can_be_filmed(base)
    units: list[Unit] = [Costs(study, out, tuple(first)), *scripted()]
    for seed in study.seeds:
        of_seed = [stages for stages in runs if stages[0].seed == seed]
        for stages in of_seed:
            units += [*stages, evaluated(stages[-1])]
            if films and seed == study.seeds[0]:
                units.append(Film(study, stages[-1]))
        for curve in study.curves:
            units += [evaluated(stages[-1], curve) for stages in of_seed]
            if seed == study.seeds[0]:
                units += scripted(curve)
    return units


def _can_be_filmed(run: Run) -> bool:
    with closing(checkpoint.make_env(run.job.env_id, run.job.env)) as env:
        return "rgb_array" in env.metadata.get("render_modes", ())


@dataclass(frozen=True)
class Page:
    """The page and where it is written."""

    study: StudyConfig
    out: Path
    command: str
    runs: list[list[Run]] = field(repr=False)

    def write(self, missing: Sequence[str]) -> bool:
        """Write it if that changes it, and say whether it did; `missing` is not done yet."""
        runs = [run for stages in self.runs for run in stages]
        text = study_page.render(self.study, self.out, self.command, runs, missing).encode()
        path = self.out / PAGE
        if path.is_file() and path.read_bytes() == text:
            return False
        checkpoint.write_atomically(path, text)
        return True


def _check_directory(out: Path, study: StudyConfig) -> None:
    """UserError when the directory belongs to something else."""
    saved = out / STUDY
    if saved.is_file():
        title = configuration.read_yaml(saved).get("title")
        if title != study.title:
            raise UserError(
                f"{out} holds another study, {title!r}, not {study.title!r}: give another --out"
            )
    elif out.exists() and (not out.is_dir() or _visible(out)):
        raise UserError(f"{out} holds something that is no study: give another --out")


def _visible(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def _claim(out: Path, study: StudyConfig) -> None:
    text = configuration.to_yaml(
        configuration.dump(study), "Resolved configuration of this study, every default filled in."
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / STUDY).is_file() or (out / STUDY).read_text(encoding="utf-8") != text:
            checkpoint.write_atomically(out / STUDY, text.encode())
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None


def _ready(study: StudyConfig, runs: list[list[Run]]) -> None:
    """Record what is cloned, and UserError when a run that is not finished could not begin."""
    arms: dict[str, list[Run]] = {}
    for stages in runs:
        if not all(run.done() for run in stages):
            arms.setdefault(stages[0].arm.name, stages)
    if arms and study.demonstrations is not None:
        status = demos.main(shlex.split(study.demonstrations))
        if status != 0:
            raise StoppedError(status)
    for stages in arms.values():
        prepare(stages)


def _make(units: Sequence[Unit], page: Page) -> None:
    """Make what is missing, in turn; the page now and then, and however this ends."""
    missing = [unit for unit in units if not unit.done()]
    due = time.monotonic()
    try:
        while missing:
            if time.monotonic() >= due:
                page.write([unit.label for unit in missing])
                due = time.monotonic() + PAGE_EVERY_S
            number = len(units) - len(missing) + 1
            print(f"[{number}/{len(units)}] {missing[0].label}", flush=True)
            missing[0].do()
            missing.pop(0)
    finally:
        page.write([unit.label for unit in missing])


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m training.study",
        description=(__doc__ or "").split("\n")[0],
        epilog=f"fields of the configuration:\n{configuration.describe(StudyConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", required=True, help="the study, YAML")
    parser.add_argument("--out", metavar="DIR", help="where all goes (default: studies/<config>)")
    parser.add_argument(
        "--page", action="store_true", help="write the page from what is there, and nothing else"
    )
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    path = study_file(arguments.config)
    out = Path(arguments.out) if arguments.out else Path("studies") / path.stem
    command = shlex.join(
        ["python", "-m", "training.study", "--config", str(path), "--out", str(out)]
    )
    try:
        _run(path, out, command, arguments.page)
    except (KeyboardInterrupt, StoppedError) as error:
        status = error.status if isinstance(error, StoppedError) else 130
        print(f"\nstopped; what is finished is kept; go on with: {command}", flush=True)
        return status
    except OSError as error:
        raise UserError(f"{out}: a file of the study cannot be written: {error}") from None
    return 0


def _run(path: Path, out: Path, command: str, page_alone: bool) -> None:
    study = load_config(path)
    check_device(study.device)
    _check_directory(out, study)
    runs = all_runs(study, path, out)
    units = plan(study, out, runs)
    for unit in units:
        unit.check()
    page = Page(study, out, command, runs)
    if page_alone or all(unit.done() for unit in units):
        _claim(out, study)
        written = page.write([unit.label for unit in units if not unit.done()])
        print(f"{'wrote' if written else 'nothing to do; see'} {out / PAGE}")
        return
    _ready(study, runs)
    _claim(out, study)
    with run_log.lock(out):
        for left_over in [*out.glob(".*.*.*"), *out.glob("evaluations/.*.json.*")]:
            left_over.unlink()  # half a file, of a process that was killed
        _make(units, page)
    print(f"done: {out / PAGE}")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of `python -m training.study` and `foveate-study`; returns the exit status."""
    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    sys.exit(main())
