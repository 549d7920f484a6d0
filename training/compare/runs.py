"""The training runs of a study: which configuration, in which directory, how far, and going on."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from training.algorithms import registry as trainers
from training.algorithms.job_config import JobConfig, missing_keys
from training.algorithms.lifecycle import Job, build_policy, train
from training.algorithms.registry import load_any_config, trainer_of
from training.algorithms.resuming import check_same_job
from training.algorithms.uptraining import check_heads, kernel, renewed, without
from training.command.errors import NotFiniteError
from training.command.files import refusal
from training.compare.config import ArmConfig, CurveConfig, StudyConfig, slug, stage_file
from training.compare.stopped import Stop, note_stop, stop_of
from training.io import checkpoint, run_log
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.metrics import read_metrics
from training.io.overrides import merge, read_overrides

__all__ = [
    "Run",
    "check_demonstrations",
    "check_policies",
    "iterations_made",
    "load_jobs",
    "runs_of",
]


_OF_THE_STUDY = {"iterations", "demonstrations", "device"}
"""Keys that a resumed run may change, but a study of finished runs may not."""


@dataclass(frozen=True)
class Run:
    """One stage of one arm and seed."""

    arm: ArmConfig
    seed: int
    stage: int
    directory: Path
    trainer: str
    job: JobConfig
    start: Path | None = None
    """The run that it needs: the stage before, from whose policy it begins."""
    alone = False

    @property
    def trained(self) -> Path:
        """From where others start."""
        return self.directory

    @property
    def label(self) -> str:
        """What is printed before it."""
        return f"train {self.directory.name} ({self.trainer}, {self.job.iterations} iterations)"

    @property
    def stop(self) -> Stop | None:
        """Why it stopped for good, before its last iteration; None where it did not."""
        return stop_of(self.directory)

    def done(self) -> bool:
        """Whether it has made all its iterations, or stopped for good."""
        made = iterations_made(self.directory)
        return made == self.job.iterations or self.stop is not None

    def has_no_policy(self) -> bool:
        """Whether it is done and its checkpoints were removed."""
        return self.done() and not checkpoint.in_run(self.directory)

    def check(self) -> None:
        """UserError when the directory holds a run of another configuration or another start."""
        self._check_start()
        saved = self.directory / run_log.CONFIG
        if not saved.is_file():
            return
        there = configuration.dump(load_any_config(saved, trainer=self.trainer))
        free = {*trainer_of(self.job).free} | ({"init_from"} if self.stage else set())
        free -= _OF_THE_STUDY
        free |= missing_keys(type(self.job), configuration.read_yaml(saved)).keys()
        for change in differences(there, configuration.dump(self.job), free):
            raise UserError(
                f"{self.directory} was trained with {change.told('the study now has')}; give "
                "another --out, or move that run and what followed from it away"
            )

    def check_trained(self) -> None:
        """UserError when the configuration in the directory is not that of its last checkpoint."""
        saved = self.directory / run_log.CONFIG
        for newest in checkpoint.in_run(self.directory)[-1:] if saved.is_file() else []:
            own = trainer_of(self.job)
            missing = missing_keys(own.config, configuration.read_yaml(saved))
            there = configuration.dump(load_any_config(saved, missing, self.trainer))
            check_same_job(checkpoint.load(newest), own, there, saved)

    def _check_start(self) -> None:
        """UserError when it began from another policy than the stage before has now."""
        own = checkpoint.in_run(self.directory)
        if self.start is None or not own:
            return
        before = checkpoint.in_run(self.start)
        if not before and iterations_made(self.start):
            return  # its checkpoints were removed
        if not before or self._begins_otherwise(
            checkpoint.load(before[-1]), checkpoint.load(own[0]).policy
        ):
            raise UserError(
                f"{self.directory} was trained from another policy than {self.start} has now; "
                "bring that run back, or move the one that followed from it away too"
            )

    def _begins_otherwise(self, before: checkpoint.Checkpoint, first: dict[str, Tensor]) -> bool:
        """Whether this run's `first` policy is not what was trained before; feature maps aside
        where they are others."""
        settings = checkpoint.policy_settings(before.config.get("policy", {}), before.path)
        prefixes: tuple[str, ...] = ()
        if kernel(settings) != kernel(self.job.policy):
            policy = build_policy(self.job.env_id, self.job.env, self.job.policy)
            prefixes = renewed(policy, settings, self.job.policy)
        both = (without(tensors, prefixes) for tensors in (before.policy, first))
        return bool(differences(*map(fingerprint, both)))

    def do(self) -> None:
        """Train from the beginning, or from its latest checkpoint. What is not finite stops it for
        good, and runs that begin from it."""
        before = None if self.start is None else stop_of(self.start)
        if before is not None:
            note_stop(self.directory, Stop(0, f"the stage before stopped: {before.reason}"))
            return
        begun = (self.directory / run_log.CONFIG).is_file()
        if begun and not checkpoint.in_run(self.directory):  # they were removed: it begins anew
            (self.directory / run_log.METRICS).unlink(missing_ok=True)
        with contextlib.redirect_stdout(io.StringIO()):  # what it says is about the run alone
            try:
                train(self.job, self.directory)
            except NotFiniteError as error:
                note_stop(self.directory, Stop(iterations_made(self.directory), str(error)))
            except (OSError, MemoryError) as error:
                raise UserError(refusal(error)) from None


def iterations_made(run: Path) -> int:
    """By a run's last checkpoint; by its metrics, where all checkpoints were removed."""
    saved = checkpoint.in_run(run)
    if saved:
        return checkpoint.iteration_of(saved[-1])
    if not (run / run_log.METRICS).is_file():
        return 0
    made = read_metrics(run).columns["iteration"]
    return int(made[-1]) if len(made) else 0


def load_jobs(study: StudyConfig, path: Path, arm: ArmConfig, seed: int) -> list[Any]:
    """The stages' configurations for an arm and seed; UserError when one is bad."""
    jobs: list[Any] = []
    for stage in study.stages:
        file = stage_file(path, stage.config)
        own: dict[str, Any] = dict.fromkeys(study.seed_keys, seed)
        if study.workers is not None:
            own["workers"] = study.workers
        if study.ray_address is not None and trainers.named(stage.trainer)[0].has("ray_address"):
            own["ray_address"] = study.ray_address
        try:
            changes = _in_turn(stage.set, arm.set, stage.always, own)
            jobs.append(load_any_config(file, changes, stage.trainer))
        except UserError as error:
            raise UserError(f"{path}, arm {arm.name}: {error}") from None
    return jobs


def _in_turn(*layers: dict[str, Any]) -> dict[str, Any]:
    """The settings of all layers, nested; the later one's where two give the same setting.

    UserError when one layer gives a setting two values.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        merge(values, read_overrides(layer))
    return values


def runs_of(study: StudyConfig, path: Path, out: Path, arm: ArmConfig, seed: int) -> list[Run]:
    """The runs of an arm and seed, in turn; all but the last have their stage in the name.

    UserError when a stage's configuration cannot be loaded.
    """
    runs: list[Run] = []
    before: Path | None = None
    jobs = load_jobs(study, path, arm, seed)
    for i, (stage, job) in enumerate(zip(study.stages, jobs, strict=True)):
        name = f"{slug(arm.name)}-s{seed}" + (f"-{i + 1}" if i + 1 < len(jobs) else "")
        if before is not None:
            job = _changed(job, init_from=str(before))
        directory = out / "runs" / name
        runs.append(Run(arm, seed, i, directory, stage.trainer, job, before))
        before = directory
    return runs


def _changed(job: Any, **changes: Any) -> Any:
    return dataclasses.replace(job, **changes)


def check_policies(runs: list[Run], curves: Sequence[CurveConfig] = ()) -> None:
    """Build the policies of an arm's runs, writing nothing, the last with the curves' repairs too.

    UserError when one cannot be built, or not be begun from the one before it.
    """
    before: Any = None
    settings: Any = None
    for run in runs:
        try:
            job, trainer = run.job, trainer_of(run.job)
            if trainer.has("init_from"):  # which is not there yet
                job = _changed(job, init_from=None)
            # Nor are recordings.
            prepare: Any = Job if trainer.clones_recordings else trainer.module.prepare
            with closing(prepare(job)) as prepared:
                policy = prepared.policy
            if before is not None:
                _check_same_policy(before, policy, settings, job.policy)
            before, settings = policy, job.policy
            if run is runs[-1]:
                _check_repairs(run, curves)
        except UserError as error:
            raise UserError(f"arm {run.arm.name}, stage {run.stage + 1}: {error}") from None


def _check_repairs(run: Run, curves: Sequence[CurveConfig]) -> None:
    job: Any = run.job
    for repair in dict.fromkeys(curve.repair for curve in curves):
        if repair is not None:
            repaired = checkpoint.with_repair(job.policy, repair, "its policy")
            build_policy(job.env_id, job.env, repaired)


def _check_same_policy(before: Any, policy: Any, settings: Any, now: Any) -> None:
    """UserError where more than the feature map differs of the stage before, of other settings."""
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


def check_demonstrations(runs: Sequence[Run], begin: bool) -> None:
    """UserError when runs were, or would be, cloned from different states of a recording.

    Args:
        runs: all of the study.
        begin: whether those that have not begun are about to.
    """
    known: dict[tuple[str, Any], tuple[str, Path]] = {}
    cloned = [run for run in runs if trainer_of(run.job).clones_recordings]
    cloned.sort(key=lambda run: not checkpoint.in_run(run.directory))  # those that began first
    begun: set[tuple[str, Any]] = set()
    for run in cloned:
        job: Any = run.job
        key, saved = (job.demonstrations, job.demos_used), checkpoint.in_run(run.directory)
        if saved:
            identity = checkpoint.load(saved[-1]).state.get("basis", {}).get("demonstrations")
        elif begin and key not in begun and not run.done():
            identity = trainer_of(job).module.identity(job)
            begun.add(key)
        else:
            continue
        first = known.setdefault(key, (identity, run.directory))
        if first[0] != identity:
            raise UserError(
                f"{first[1]} was cloned from other demonstrations than {run.directory} "
                f"{'was' if saved else 'would be'}: {job.demonstrations} has changed between; "
                "bring the old ones back, or give another --out"
            )
