"""A study: the matrix of its jobs, its directory, and its record."""

import shlex
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from training.analysis.agents import check_device
from training.collect.environments import make_env, render_modes
from training.command.errors import command_line
from training.command.files import read_bytes, write_atomically
from training.compare.config import CurveConfig, StudyConfig
from training.compare.evaluations import BLIND, EvaluationJob, episodes_in, unfinished
from training.compare.jobs import PAGE, Comparison, Job, check_owner, write_changed
from training.compare.model_files import CostJob, GazeJob, PolicyJob, VideoJob, has_gaze
from training.compare.page import pareto_picture, render
from training.compare.record import Columns, check_record, pack, unpack
from training.compare.results import read_results
from training.compare.runs import TrainingJob, all_runs, check_demonstrations, check_policies
from training.demonstrations.arguments import parser
from training.demonstrations.recorder import record_all
from training.demonstrations.request import plan as plan_recording
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences

STUDY, PICTURE = "study.yaml", "pareto.png"
FOLDERS = ("runs", "evaluations")


@dataclass(frozen=True)
class Study(Comparison):
    """Variants that are trained in the same way and evaluated on the same scenes."""

    settings: StudyConfig
    path: Path
    """Its configuration file."""
    out: Path
    overrides: Sequence[str] = ()
    """Words of `--set`, for the command on the page."""
    noun, config_file = "study", STUDY

    @cached_property
    def runs(self) -> list[list[TrainingJob]]:
        """The stages of every seed and variant."""
        return all_runs(self.settings, self.path, self.out)

    @property
    def _every_run(self) -> list[TrainingJob]:
        return [run for stages in self.runs for run in stages]

    def jobs(self) -> list[Job]:
        check_device(self.settings.device)
        check_directory(self.out, self.settings)
        check_demonstrations(self._every_run, starting=False)
        return plan(self.settings, self.out, self.runs)

    def config_text(self) -> str:
        data = configuration.dump(self.settings)
        for key, parts in (
            ("repair", data["curves"]), ("group", data["arms"]), ("best_seeds", [data]),
            ("blind", [data]), ("sample_actions", [data]), ("always", data["stages"]),
        ):  # fmt: skip
            for part in parts:
                if not part[key]:  # files of studies without them stay as they are
                    del part[key]
        return configuration.to_yaml(
            data, "Resolved configuration of this study, every default filled in."
        )

    def check(self, missing: Sequence[Job]) -> None:
        checked = set()
        for stages in self.runs:  # of one seed of every variant that has a run to train
            if stages[0].variant.name not in checked and self._trains(missing, stages):
                check_policies(stages, self.settings.curves)
                checked.add(stages[0].variant.name)

    def prepare(self, missing: Sequence[Job]) -> None:
        for path in (self.out / "evaluations").glob("*.json"):
            left = unfinished(path)  # by a process that was killed once the result was written
            if left.is_file() and len(read_bytes(left).splitlines()) <= episodes_in(path) + 1:
                left.unlink()
        if not self._trains(missing, self._every_run):
            return
        if self.settings.demonstrations is not None:
            words = parser().parse_args(shlex.split(self.settings.demonstrations))
            record_all(plan_recording(words), words.episodes, words.workers, words.valid_share)
        check_demonstrations(self._every_run, starting=True)

    def _trains(self, missing: Sequence[Job], runs: Sequence[TrainingJob]) -> bool:
        """Whether one of the missing jobs is one of these runs."""
        return not {job.model for job in missing}.isdisjoint(run.directory for run in runs)

    def write_page(self, missing: Sequence[str], failed: Sequence[str] = ()) -> bool:
        results = read_results(self.settings, self.out, self._every_run)
        text = render(results, self.command(), missing, failed).encode()
        path, picture = self.out / PAGE, self.out / PICTURE
        same = path.is_file() and path.read_bytes() == text
        drawn = None if same and picture.is_file() else pareto_picture(results)
        if drawn is not None:
            write_atomically(picture, drawn)
        return write_changed(path, text) or drawn is not None

    def command(self, out: Path | None = None, only: Sequence[str] = ()) -> str:
        words = ["--config", str(self.path), *(["--out", str(out)] if out else [])]
        words += ["--only", *only] if only else []
        words += ["--set", *self.overrides] if self.overrides else []
        return command_line("training.study", *words)

    def unpack(self, record: Path) -> None:
        """Start the directory with a record, unless it exists. UserError when it cannot be."""
        file = self.out / STUDY
        if file.is_file():
            return
        check_record(record)
        if (record / STUDY).is_file():  # absent in the oldest records
            check_directory(record, self.settings, "--unpack")
        all_runs(self.settings, self.path, self.out)  # which checks the stages
        unpack(record, self.out)
        made = configuration.read_yaml(file).get("episodes") if file.is_file() else None
        if made not in (None, self.settings.episodes):
            print(
                f"note: evaluations of {record} have {made} episodes, "
                f"{self.settings.episodes} are asked for, so they do not count; they do with "
                f"--set episodes={made}"
            )

    def check_record(self, record: Path) -> None:
        """UserError where the record would be written over something else."""
        if record.resolve() == self.out.resolve() or any((record / n).exists() for n in FOLDERS):
            raise UserError(f"--record {record} is a study's own directory: give another one")
        check_directory(record, self.settings, "--record")

    def write_record(self, record: Path) -> None:
        """Write the record of the results that exist, and the page as it follows from it."""
        pack(self.out, record, *self._contents())
        with tempfile.TemporaryDirectory() as folder:
            unpacked = Study(self.settings, self.path, Path(folder) / self.out.name, self.overrides)
            unpack(record, unpacked.out)
            jobs = plan(unpacked.settings, unpacked.out, unpacked.runs)
            unpacked.write_page([job.label for job in jobs if job.status().state != "done"])
            write_atomically(record / PAGE, (unpacked.out / PAGE).read_bytes())
        (record / PICTURE).unlink(missing_ok=True)  # of an older record; the page shows it
        print(f"wrote {record}")

    def _contents(self) -> tuple[Columns, Columns]:
        """The runs and evaluations, with columns that name their variant."""
        of_run: dict[str, dict[str, Any]] = {
            run.directory.name: {
                "arm": run.variant.name, "training_seed": run.seed, "stage": run.stage + 1,
            }
            for run in self._every_run
        }  # fmt: skip
        evaluations: dict[str, dict[str, Any]] = {}
        for job in plan(self.settings, self.out, self.runs):
            if isinstance(job, EvaluationJob):
                of_policy = of_run.get(job.who, {"arm": job.who})
                for path, (x, _) in job.points().items():
                    where = {"curve": job.curve.name, "x": x} if job.curve else {}
                    evaluations[path.stem] = of_policy | where
        return of_run, evaluations


def plan(study: StudyConfig, out: Path, runs: list[list[TrainingJob]]) -> list[Job]:
    """All jobs in order: leading variants first, of each seed all of them, then the curves."""
    first = [stages[-1] for stages in runs[: len(study.arms)]]
    base = next(run for run in first if run.variant.name == study.baseline)

    def evaluated(run: TrainingJob, curve: CurveConfig | None = None) -> EvaluationJob:
        job, name = run.job, run.directory.name
        return EvaluationJob(study, out, name, job.env_id, job.env, run.directory, curve)

    def blind(run: TrainingJob) -> list[EvaluationJob]:
        if not study.blind:
            return []
        return [replace(evaluated(run), who=f"{run.directory.name}-{BLIND}", blind=True)]

    def scripted(curve: CurveConfig | None = None) -> list[EvaluationJob]:
        job = base.job  # in the baseline's environment
        names = study.references
        return [EvaluationJob(study, out, n, job.env_id, job.env, None, curve) for n in names]

    videos = study.videos
    if videos:
        with closing(make_env(base.job.env_id, base.job.env)) as env:
            videos = "rgb_array" in render_modes(env)
    jobs: list[Job] = [CostJob(study, out, tuple(first)), *scripted()]
    leading = study.arms[: study.leading_arms]
    for group in (leading, study.arms[len(leading) :]):
        of_group = [stages for stages in runs if stages[0].variant in group]
        last = [stages[-1] for stages in of_group]
        compared = study.headline if study.compare_stages else None
        earlier = [run for stages in of_group for run in stages[:-1]
                   if run.variant.name == compared]  # fmt: skip
        lasting = [run for run in (*last, *earlier) if run.stop is None]
        for stages, run in zip(of_group, last, strict=True):
            jobs += [*stages, *([evaluated(run), *blind(run)] if run in lasting else [])]
            if run.stop is not None or run.has_no_policy:
                continue
            jobs += [GazeJob(study, run)] if has_gaze(run) else []
            if run.seed == study.seeds[0]:
                jobs.append(PolicyJob(study, run))
                jobs += [VideoJob(study, run)] if videos else []
        jobs += [evaluated(run) for run in earlier if run in lasting]
        for curve in study.curves:
            jobs += [evaluated(run, curve) for run in lasting]
            jobs += scripted(curve) if group == leading else []
    return jobs


def check_directory(out: Path, study: StudyConfig, option: str = "--out") -> None:
    """UserError when the directory that an option names belongs to something else."""
    if not check_owner(out, STUDY, study.title, "study", option):
        return
    there = {"demonstrations": configuration.read_yaml(out / STUDY).get("demonstrations")}
    for change in differences(there, {"demonstrations": study.demonstrations}):
        folder = out / "runs"
        runs = list(folder.iterdir()) if folder.is_dir() else []
        if change.before is not None and any(path.name[0] != "." for path in runs):
            raise UserError(
                f"{out} has runs with {change.describe('the study now has')}; give another --out"
            )
