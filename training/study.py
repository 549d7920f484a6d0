"""Train arms alike over several seeds, evaluate them on the same scenes, and write one page.

python -m training.study --config configs/studies/stepping_stones.yaml

Everything lands in one directory, unit by unit: a run, an evaluation, a video. What is there is
not made again, so the same command goes on after any interruption, and does nothing when all is
done. The page is written anew as units are done, and says what is missing.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.study"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
import re
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import torch

from training import demos
from training.command.command_lines import command_line
from training.command.files import lock, read_bytes, write_atomically
from training.command.signals import exit_status, interrupted_status
from training.episodes.environments import make_env, render_modes
from training.evaluation.players import check_device
from training.settings import config as configuration
from training.settings.config import ArgumentParser, UserError
from training.studies.charts import pareto_picture
from training.studies.config import CurveConfig, StudyConfig, load_config, study_file
from training.studies.evaluations import Conditions, Costs, episodes_in, unfinished
from training.studies.page import render
from training.studies.record import Told, pack, unpack
from training.studies.runs import Run, StoppedError, check_demonstrations, check_policies, runs_of
from training.studies.schedule import Unit, make
from training.studies.shares import Film, Look, Share, has_gaze
from training.studies.summary import summarise

__all__ = ["load_config", "main"]

STUDY, PAGE, PICTURE = "study.yaml", "report.html", "pareto.png"
FOLDERS = ("runs", "evaluations")


def all_runs(study: StudyConfig, path: Path, out: Path) -> list[list[Run]]:
    """The stages of every seed and arm, seeds outermost; UserError when a configuration is bad."""
    pairs = [(seed, arm) for seed in study.seeds for arm in study.arms]
    return [runs_of(study, path, out, arm, seed) for seed, arm in pairs]


def plan(study: StudyConfig, out: Path, runs: list[list[Run]]) -> list[Unit]:
    """All units in their order: the leading arms first, of each seed all of them, then curves."""
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
    leading = study.arms[: study.leading_arms]
    for group in (leading, study.arms[len(leading) :]):
        of_group = [stages for stages in runs if stages[0].arm in group]
        last = [stages[-1] for stages in of_group]
        compared = study.headline if study.compare_stages else None
        earlier = [run for stages in of_group for run in stages[:-1] if run.arm.name == compared]
        for stages, run in zip(of_group, last, strict=True):
            units += [*stages, evaluated(run)]
            if run.has_no_policy():
                continue
            units += [Look(study, run)] if has_gaze(run) else []
            if run.seed == study.seeds[0]:
                units.append(Share(study, run))
                units += [Film(study, run)] if films else []
        units += [evaluated(run) for run in earlier]
        for curve in study.curves:
            units += [evaluated(run, curve) for run in (*last, *earlier)]
            units += scripted(curve) if group == leading else []
    return units


def _can_be_filmed(run: Run) -> bool:
    with closing(make_env(run.job.env_id, run.job.env)) as env:
        return "rgb_array" in render_modes(env)


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


def _check_directory(out: Path, study: StudyConfig, option: str = "--out") -> None:
    """UserError when the directory that an option names belongs to something else."""
    saved = out / STUDY
    if saved.is_file():
        before = configuration.read_yaml(saved)
        title, recorded = before.get("title"), before.get("demonstrations")
        if title != study.title:
            raise UserError(
                f"{out} holds another study, {title!r}, not {study.title!r}: give another {option}"
            )
        if recorded is not None and recorded != study.demonstrations and _visible(out / "runs"):
            raise UserError(
                f"{out} has runs with demonstrations = {recorded!r}, but the study now has "
                f"{study.demonstrations!r}; give another --out"
            )
    elif out.exists() and (not out.is_dir() or _visible(out)):
        raise UserError(f"{out} holds something that is no study: give another {option}")


def _visible(folder: Path) -> list[str]:
    found = folder.iterdir() if folder.is_dir() else ()
    return [path.name for path in found if not path.name.startswith(".")]


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None


def _write_config(out: Path, study: StudyConfig) -> None:
    data = configuration.dump(study)
    for curve in data["curves"]:
        if curve["repair"] is None:  # files of studies that knew of none stay as they are
            del curve["repair"]
    text = configuration.to_yaml(
        data, "Resolved configuration of this study, every default filled in."
    )
    if not (out / STUDY).is_file() or (out / STUDY).read_text(encoding="utf-8") != text:
        write_atomically(out / STUDY, text.encode())


def _unfinished(runs: list[list[Run]]) -> list[list[Run]]:
    """The stages of a seed of every arm that has a run to make."""
    arms: dict[str, list[Run]] = {}
    for stages in runs:
        if not all(run.done() for run in stages):
            arms.setdefault(stages[0].arm.name, stages)
    return list(arms.values())


def _record(study: StudyConfig) -> None:
    """Record what is cloned, as far as it is not there. Raises StoppedError."""
    if study.demonstrations is not None:
        status = demos.main(shlex.split(study.demonstrations))
        if status != 0:
            raise StoppedError(status)


def _clean(out: Path) -> None:
    """Remove what a process that was killed left and nothing needs: half a file by the names that
    the study itself gives, episodes of an evaluation whose result is there."""
    for folder, names in (
        (out, "|".join(map(re.escape, (STUDY, PAGE, PICTURE, "costs.json")))),
        (out / "evaluations", r"[a-z0-9.+-]+\.jsonl?"),
        (out / "policies", r"[a-z0-9-]+\.safetensors"),
        (out / "gaze", r"[a-z0-9-]+\.json"),
    ):
        for path in folder.iterdir() if folder.is_dir() else ():
            if re.fullmatch(rf"\.({names})\.\d+", path.name):
                path.unlink()
    for path in (out / "evaluations").glob("*.json"):
        left = unfinished(path)
        if left.is_file() and len(read_bytes(left).splitlines()) <= episodes_in(path) + 1:
            left.unlink()  # and none where more episodes follow


def _told(units: Sequence[Unit], runs: list[list[Run]]) -> Told:
    """The runs and evaluations of the study, and what a record's tables say of each."""
    of_run: dict[str, dict[str, object]] = {
        run.directory.name: {"arm": run.arm.name, "training_seed": run.seed, "stage": run.stage + 1}
        for stages in runs
        for run in stages
    }
    evaluations: dict[str, dict[str, object]] = {}
    for unit in units:
        if isinstance(unit, Conditions):
            of_policy = of_run.get(unit.who, {"arm": unit.who})
            for path, point in unit.points().items():
                where = {"curve": unit.curve.name, "x": point.x} if unit.curve and point else {}
                evaluations[path.stem] = of_policy | where
    return Told(of_run, evaluations)


def _check_record(record: Path, study: StudyConfig, out: Path) -> None:
    """UserError where the record would be written over something else."""
    if record.resolve() == out.resolve() or any((record / n).exists() for n in FOLDERS):
        raise UserError(f"--record {record} is a study's own directory: give another one")
    _check_directory(record, study, "--record")


def _write_record(
    study: StudyConfig, path: Path, out: Path, overrides: Sequence[str], record: Path
) -> None:
    """The record of what is there, and the page as it is written from it."""
    runs = all_runs(study, path, out)
    pack(out, record, _told(plan(study, out, runs), runs))
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / out.name
        unpack(record, unpacked)
        runs = all_runs(study, path, unpacked)
        missing = [unit.label for unit in plan(study, unpacked, runs) if not unit.done()]
        Page(study, unpacked, _command(path, overrides), runs).write(missing)
        for name in (PAGE, PICTURE):
            if (unpacked / name).is_file():
                write_atomically(record / name, (unpacked / name).read_bytes())
    print(f"wrote {record}")


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
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the study, as in --set 'seeds=[0]' parallel=4",
    )  # fmt: skip
    parser.add_argument(
        "--page", action="store_true", help="write the page from what is there, and nothing else"
    )
    parser.add_argument(
        "--record", metavar="DIR", help="write tables and the page of what is there, a few small "
        "files without checkpoints, and nothing else",
    )  # fmt: skip
    parser.add_argument(
        "--unpack", metavar="RECORD", help="begin --out with a record, where it is not begun yet"
    )
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    path = study_file(arguments.config)
    out = Path(arguments.out) if arguments.out else Path("studies") / path.stem
    record = None if arguments.record is None else Path(arguments.record)
    try:
        study = load_config(path, arguments.set)
        if arguments.unpack is not None and not (out / STUDY).is_file():
            _check_directory(Path(arguments.unpack), study, "--unpack")
            all_runs(study, path, out)
            unpack(Path(arguments.unpack), out)
        if record is not None:
            _check_record(record, study, out)
        status = _run(study, path, out, arguments.set, arguments.page or record is not None)
        if record is not None:
            _write_record(study, path, out, arguments.set, record)
        return status
    except (KeyboardInterrupt, StoppedError) as error:
        status = interrupted_status(error)
        command = _command(path, arguments.set, out)
        print(f"\nstopped; what is finished is kept; go on with: {command}", flush=True)
        return status
    except BrokenPipeError:
        raise  # of standard output, no file of the study
    except OSError as error:
        raise UserError(f"{out}: a file of the study cannot be written: {error}") from None


def _command(path: Path, overrides: Sequence[str], out: Path | None = None) -> str:
    """What runs the study, as a shell takes it."""
    words = ["--config", str(path), *(["--out", str(out)] if out else [])]
    return command_line("training.study", *words, *(["--set", *overrides] if overrides else []))


def _run(
    study: StudyConfig, path: Path, out: Path, overrides: Sequence[str], page_alone: bool
) -> int:
    check_device(study.device)
    _check_directory(out, study)
    runs = all_runs(study, path, out)
    every = [run for stages in runs for run in stages]
    units = plan(study, out, runs)
    for unit in units:
        unit.check()
    for run in every:
        run.check_trained()
    check_demonstrations(every, begin=False)
    page = Page(study, out, _command(path, overrides), runs)
    missing = [unit.label for unit in units if not unit.done()]
    if page_alone or not missing:
        _make_directory(out)
        if not (out / STUDY).is_file() or not missing:
            _write_config(out, study)
        written = page.write(missing)
        print(f"{'wrote' if written else 'nothing to do; see'} {out / PAGE}")
        return 0
    for stages in _unfinished(runs):
        check_policies(stages, study.curves)
    _make_directory(out)
    with lock(out):
        _write_config(out, study)
        _clean(out)
        if _unfinished(runs):
            _record(study)
            check_demonstrations(every, begin=True)
        failures = make(units, page.write, study.parallel)
    if failures.reasons:
        print(
            f"{len(failures.reasons)} parts failed, {out / PAGE} lists them; try them again with: "
            f"{_command(path, overrides, out)}",
            flush=True,
        )
        return 2
    print(f"done: {out / PAGE}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of `python -m training.study` and `foveate-study`; returns the exit status."""
    return exit_status(lambda: run(argv))
