"""The training runs of a study: their configurations, directories and checks."""

import contextlib
import dataclasses
import io
import itertools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from training.algorithms.feature_maps import check_heads, kernel, renewed, without
from training.algorithms.registry import find_trainers, load_any_config, trainer_of
from training.algorithms.resuming import check_same_job
from training.algorithms.trainer import JobConfig, missing_keys
from training.command.errors import NotFiniteError
from training.command.files import refusal, write_json
from training.compare.config import CurveConfig, StudyConfig, VariantConfig, slug, stage_file
from training.compare.jobs import DONE, MISSING, Job, Status, stale
from training.io import checkpoint, run_log
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.metrics import read_metrics
from training.io.overrides import merge, read_overrides
from training.io.state_files import Count, State, read_json
from training.runner import Algorithm, build_policy, train

STOPPED = "stopped.json"
_OF_THE_STUDY = {"iterations", "demonstrations", "device"}
"""Keys that a resumed run may change, but a study of finished runs may not."""


@dataclass(frozen=True, config=State)
class Stop:
    """Where and why training ended for good: numbers were not finite, and would be so again."""

    iterations: Count
    """Iterations made."""
    reason: str


def read_stop(run: Path) -> Stop | None:
    """Why training in a directory ended for good; None where it did not.

    Raises UserError when the file is damaged.
    """
    path = run / STOPPED
    return read_json(Stop, path) if path.is_file() else None


def write_stop(run: Path, stop: Stop) -> None:
    """Write the file that keeps a study from training on from the last checkpoint."""
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / STOPPED, dataclasses.asdict(stop))


@dataclasses.dataclass(frozen=True)
class TrainingJob(Job):
    """One stage of one variant and seed."""

    variant: VariantConfig
    seed: int
    stage: int
    directory: Path
    trainer: str
    job: JobConfig
    start: Path | None = None
    """Directory of the stage before, from whose policy it starts."""

    @property
    def label(self) -> str:
        return f"train {self.directory.name} ({self.trainer}, {self.job.iterations} iterations)"

    @property
    def requires(self) -> Path | None:
        return self.start

    @property
    def model(self) -> Path:
        return self.directory

    @property
    def stop(self) -> Stop | None:
        """Why it ended for good before its last iteration; None where it did not."""
        return read_stop(self.directory)

    @property
    def stop_reason(self) -> str | None:
        return None if self.stop is None else self.stop.reason

    @property
    def finished(self) -> bool:
        """Whether it has made all its iterations, or ended for good."""
        return iterations_made(self.directory) == self.job.iterations or self.stop is not None

    @property
    def has_no_policy(self) -> bool:
        """Whether it is finished and its checkpoints were removed."""
        return self.finished and not checkpoint.in_run(self.directory)

    def status(self) -> Status:
        """Stale: its directory holds a run of another configuration, or from another start."""
        if self._starts_elsewhere():
            return Status(
                "stale",
                f"{self.directory} was trained from another policy than {self.start} has now; "
                "bring that run back, or move the one that followed from it away too",
            )
        saved = self.directory / run_log.CONFIG
        if saved.is_file():
            there = configuration.dump(load_any_config(saved, trainer=self.trainer))
            free = {*trainer_of(self.job).free} | ({"init_from"} if self.stage else set())
            free -= _OF_THE_STUDY
            free |= missing_keys(type(self.job), configuration.read_yaml(saved)).keys()
            for change in differences(there, configuration.dump(self.job), free):
                remove = "that run and what followed from it"
                return stale(f"{self.directory} was trained", change, "study", remove)
            self._check_checkpoint(saved)
        return DONE if self.finished else MISSING

    def _check_checkpoint(self, saved: Path) -> None:
        """UserError when the configuration in the directory is not that of its last checkpoint."""
        for newest in checkpoint.in_run(self.directory)[-1:]:
            own = trainer_of(self.job)
            missing = missing_keys(own.config, configuration.read_yaml(saved))
            there = configuration.dump(load_any_config(saved, missing, self.trainer))
            check_same_job(checkpoint.load(newest), own, there, saved)

    def _starts_elsewhere(self) -> bool:
        """Whether it started from another policy than the stage before has now; feature maps aside
        where they differ."""
        own = checkpoint.in_run(self.directory)
        if self.start is None or not own:
            return False
        saved = checkpoint.in_run(self.start)
        if not saved:  # its checkpoints were removed, or all of it
            return not iterations_made(self.start)
        before, first = checkpoint.load(saved[-1]), checkpoint.load(own[0])
        settings = checkpoint.policy_settings(before.config.get("policy", {}), before.path)
        prefixes: tuple[str, ...] = ()
        if kernel(settings) != kernel(self.job.policy):
            policy = build_policy(self.job.env_id, self.job.env, self.job.policy)
            prefixes = renewed(policy, settings, self.job.policy)
        both = (without(tensors, prefixes) for tensors in (before.policy, first.policy))
        return bool(differences(*map(fingerprint, both)))

    def execute(self) -> None:
        """Train from the beginning, or from its latest checkpoint. Numbers that are not finite end
        it for good, and the stages that start from it."""
        before = None if self.start is None else read_stop(self.start)
        if before is not None:
            write_stop(self.directory, Stop(0, f"the stage before stopped: {before.reason}"))
            return
        started = (self.directory / run_log.CONFIG).is_file()
        if started and not checkpoint.in_run(self.directory):  # they were removed: start again
            (self.directory / run_log.METRICS).unlink(missing_ok=True)
        with contextlib.redirect_stdout(io.StringIO()):  # what it says is about the run alone
            try:
                train(self.job, self.directory)
            except NotFiniteError as error:
                write_stop(self.directory, Stop(iterations_made(self.directory), str(error)))
            except (OSError, MemoryError) as error:
                raise UserError(refusal(error)) from None


def iterations_made(run: Path) -> int:
    """Return the iterations of a run's last checkpoint, or of its metrics if it has none."""
    saved = checkpoint.in_run(run)
    if saved:
        return checkpoint.iteration_of(saved[-1])
    if not (run / run_log.METRICS).is_file():
        return 0
    made = read_metrics(run).columns["iteration"]
    return int(made[-1]) if len(made) else 0


def load_jobs(study: StudyConfig, path: Path, variant: VariantConfig, seed: int) -> list[Any]:
    """The stages' configurations for a variant and seed; UserError when one is bad."""
    jobs: list[Any] = []
    for stage in study.stages:
        file = stage_file(path, stage.config)
        own: dict[str, Any] = dict.fromkeys(study.seed_keys, seed)
        if study.workers is not None:
            own["workers"] = study.workers
        if study.ray_address is not None and find_trainers(stage.trainer)[0].has("ray_address"):
            own["ray_address"] = study.ray_address
        try:
            changes = _in_turn(stage.set, variant.set, stage.always, own)
            jobs.append(load_any_config(file, changes, stage.trainer))
        except UserError as error:
            raise UserError(f"{path}, variant {variant.name}: {error}") from None
    return jobs


def _in_turn(*layers: dict[str, Any]) -> dict[str, Any]:
    """The settings of all layers, nested; the later one's where two give the same setting.

    UserError when one layer gives a setting two values.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        merge(values, read_overrides(layer))
    return values


def all_runs(study: StudyConfig, path: Path, out: Path) -> list[list[TrainingJob]]:
    """The stages of every seed and variant, seeds outermost; names of runs contain their stage,
    except in the last stage.

    Raises UserError when a stage's configuration is wrong.
    """
    found = []
    for seed, variant in itertools.product(study.seeds, study.arms):
        stages: list[TrainingJob] = []
        jobs = load_jobs(study, path, variant, seed)
        for i, (stage, job) in enumerate(zip(study.stages, jobs, strict=True)):
            name = f"{slug(variant.name)}-s{seed}" + (f"-{i + 1}" if i + 1 < len(jobs) else "")
            before = stages[-1].directory if stages else None
            if before is not None:
                job = dataclasses.replace(job, init_from=str(before))
            run = out / "runs" / name
            stages.append(TrainingJob(variant, seed, i, run, stage.trainer, job, before))
        found.append(stages)
    return found


def check_policies(runs: list[TrainingJob], curves: Sequence[CurveConfig] = ()) -> None:
    """Build the policies of a variant's runs, writing nothing; the last with curves' repairs too.

    UserError when one cannot be built, or cannot start from the one before it.
    """
    before: Any = None
    settings: Any = None
    for run in runs:
        try:
            job: Any = run.job
            trainer = trainer_of(job)
            if trainer.has("init_from"):  # which is not there yet
                job = dataclasses.replace(job, init_from=None)
            # Nor are recordings.
            prepare: Any = Algorithm if trainer.clones_recordings else trainer.prepare
            with closing(prepare(job)) as prepared:
                policy = prepared.policy
            if before is not None:
                _check_same_policy(before, policy, settings, job.policy)
            before, settings = policy, job.policy
            repairs = [c.repair for c in curves if c.repair] if run is runs[-1] else []
            for repair in dict.fromkeys(repairs):
                repaired = checkpoint.with_repair(job.policy, repair, "its policy")
                build_policy(job.env_id, job.env, repaired)
        except UserError as error:
            raise UserError(f"variant {run.variant.name}, stage {run.stage + 1}: {error}") from None


def _check_same_policy(before: Any, policy: Any, settings: Any, now: Any) -> None:
    """Raise UserError if more than the feature map differs from the stage before, which has other
    settings."""
    prefixes = renewed(policy, settings, now)
    if prefixes:
        check_heads(settings, now)
    states = (without(one.state_dict(), prefixes) for one in (before, policy))
    shapes = [{k: tuple(v.shape) for k, v in state.items()} for state in states]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        old, new = (shape.get(name, "absent") for shape in shapes)
        if old != new:
            raise UserError(
                f"its policy's tensor {name} has shape {new}, but that of the stage before, which "
                f"it starts from, has {old}"
            )


def check_demonstrations(runs: Sequence[TrainingJob], starting: bool) -> None:
    """UserError when runs were, or would be, cloned from different states of a recording.

    Args:
        runs: all of the study.
        starting: whether those that have not started are about to.
    """
    known: dict[tuple[str, Any], tuple[str, Path]] = {}
    cloned = [run for run in runs if trainer_of(run.job).clones_recordings]
    cloned.sort(key=lambda run: not checkpoint.in_run(run.directory))  # those that started first
    checked: set[tuple[str, Any]] = set()
    for run in cloned:
        job: Any = run.job
        key, saved = (job.demonstrations, job.demos_used), checkpoint.in_run(run.directory)
        if saved:
            identity = checkpoint.load(saved[-1]).state.get("basis", {}).get("demonstrations")
        elif starting and key not in checked and not run.finished:
            identity = trainer_of(job).identity(job)
            checked.add(key)
        else:
            continue
        first = known.setdefault(key, (identity, run.directory))
        if first[0] != identity:
            raise UserError(
                f"{first[1]} was cloned from other demonstrations than {run.directory} "
                f"{'was' if saved else 'would be'}: {job.demonstrations} has changed since; "
                f"restore the former demonstrations, or give another --out"
            )
