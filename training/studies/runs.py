"""The training runs of a study: which configuration, in which directory, how far, and going on."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training import bc, es, ppo
from training.evaluation.players import check_device
from training.runs import checkpoint, run_log
from training.runs.fingerprint import differences, fingerprint
from training.runs.metrics import read_metrics
from training.settings import config as configuration
from training.settings.config import UserError
from training.settings.overrides import assignment, merge, read_overrides
from training.studies.config import ArmConfig, CurveConfig, StudyConfig, slug, stage_file
from training.trainers import bc_config, es_config, es_learner, ppo_config, ppo_learner
from training.trainers import implicit_bc_config as implicit_config
from training.trainers.implicit_learner import load_data
from training.trainers.job_config import as_before, missing_keys
from training.trainers.lifecycle import build_policy, typed_again
from training.trainers.registry import JobConfig
from training.trainers.resuming import check_same_job

__all__ = [
    "Run",
    "StoppedError",
    "check_demonstrations",
    "check_policies",
    "iterations_made",
    "load_jobs",
    "runs_of",
]


class StoppedError(Exception):
    """A trainer ended early, having said why; `status` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "es": es.main, "bc": bc.main, "ppo": ppo.main,
}  # fmt: skip
_LOAD: dict[str, Callable[[str | Path, list[str]], JobConfig]] = {
    "es": es_config.load_config,
    "bc": bc.load_config,
    "ppo": ppo_config.load_config,
}
_FREE: dict[type[Any], tuple[str, ...]] = {
    es_config.ESConfig: es_config.FREE_ON_RESUME,
    bc_config.BCConfig: bc_config.FREE_ON_RESUME,
    implicit_config.ImplicitBCConfig: implicit_config.FREE_ON_RESUME,
    ppo_config.PPOConfig: ppo_config.FREE_ON_RESUME,
}
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
    arguments: tuple[str, ...]
    """Command line of the trainer that begins it, `--out` excepted."""
    start: Path | None = None
    """The run that it needs: the stage before, from whose policy it begins."""
    alone = False

    @property
    def label(self) -> str:
        """What is printed before it."""
        return f"train {self.directory.name} ({self.trainer}, {self.job.iterations} iterations)"

    def done(self) -> bool:
        """Whether it has made all its iterations."""
        return iterations_made(self.directory) == self.job.iterations

    def has_no_policy(self) -> bool:
        """Whether it is done and its checkpoints were removed."""
        return self.done() and not checkpoint.in_run(self.directory)

    def check(self) -> None:
        """UserError when the directory holds a run of another configuration or another start."""
        self._check_start()
        saved = self.directory / run_log.CONFIG
        if not saved.is_file():
            return
        there = configuration.dump(_LOAD[self.trainer](saved, []))
        free = {*_FREE[type(self.job)], *(["init_from"] if self.stage else [])} - _OF_THE_STUDY
        free |= missing_keys(configuration.read_yaml(saved)).keys()
        for change in differences(there, configuration.dump(self.job), free):
            raise UserError(
                f"{self.directory} was trained with {change.told('the study now has')}; give "
                "another --out, or move that run and what followed from it away"
            )

    def check_trained(self) -> None:
        """UserError when the configuration in the directory is not that of its last checkpoint."""
        saved = self.directory / run_log.CONFIG
        for newest in checkpoint.in_run(self.directory)[-1:] if saved.is_file() else []:
            words, kind = as_before(configuration.read_yaml(saved)), type(self.job)
            there = configuration.dump(_LOAD[self.trainer](saved, words))
            check_same_job(checkpoint.load(newest), kind, there, _FREE[kind], saved)

    def _check_start(self) -> None:
        """UserError when it began from another policy than the stage before has now."""
        own = checkpoint.in_run(self.directory)
        if self.start is None or not own:
            return
        before = checkpoint.in_run(self.start)
        if not before and iterations_made(self.start):
            return  # its checkpoints were removed
        theirs = checkpoint.load(before[-1]).policy if before else {}
        if differences(fingerprint(theirs), fingerprint(checkpoint.load(own[0]).policy)):
            raise UserError(
                f"{self.directory} was trained from another policy than {self.start} has now; "
                "bring that run back, or move the one that followed from it away too"
            )

    def do(self) -> None:
        """Train from the beginning, or from its latest checkpoint. Raises StoppedError."""
        if (self.directory / run_log.CONFIG).is_file():
            if not checkpoint.in_run(self.directory):  # they were removed: it begins anew
                (self.directory / run_log.METRICS).unlink(missing_ok=True)
            free = {key: getattr(self.job, key, None) for key in ("workers", "ray_address")}
            words = [assignment(key, value) for key, value in free.items() if value]
            words += typed_again(self.job)
            arguments = ["--resume", str(self.directory), *(["--set", *words] if words else [])]
        else:
            with contextlib.suppress(FileNotFoundError):  # killed before its first file was written
                (self.directory / checkpoint.CHECKPOINTS).rmdir()
            arguments = ["--out", str(self.directory), *self.arguments]
        with contextlib.redirect_stdout(io.StringIO()):  # its advice is about the run alone
            status = _COMMANDS[self.trainer](arguments)
        if status != 0:
            raise StoppedError(status)


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
    """The stages' (command line, configuration) for an arm and seed; UserError when one is bad."""
    jobs: list[Any] = []
    for stage in study.stages:
        file = stage_file(path, stage.config)
        own: dict[str, Any] = dict.fromkeys(study.seed_keys, seed)
        if study.workers is not None:
            own["workers"] = study.workers
        if study.ray_address is not None and stage.trainer != "bc":
            own["ray_address"] = study.ray_address
        try:
            words = _in_turn(stage.set, arm.set, own)
            job = _LOAD[stage.trainer](file, words)
        except UserError as error:
            raise UserError(f"{path}, arm {arm.name}: {error}") from None
        jobs.append((stage.trainer, ["--config", str(file), "--set", *words], job))
    return jobs


def _in_turn(*layers: dict[str, Any]) -> list[str]:
    """Overrides of all layers; the later one's where two give the same setting.

    UserError when one layer gives a setting two values.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        merge(values, read_overrides(assignment(key, value) for key, value in layer.items()))
    return [assignment(key, value) for key, value in _flat(values).items()]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        below = _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {}
        flat |= below or {prefix + key: value}
    return flat


def runs_of(study: StudyConfig, path: Path, out: Path, arm: ArmConfig, seed: int) -> list[Run]:
    """The runs of an arm and seed, in turn; all but the last have their stage in the name.

    UserError when a stage's configuration cannot be loaded.
    """
    runs: list[Run] = []
    before: Path | None = None
    jobs = load_jobs(study, path, arm, seed)
    for i, (trainer, arguments, job) in enumerate(jobs):
        name = f"{slug(arm.name)}-s{seed}" + (f"-{i + 1}" if i + 1 < len(jobs) else "")
        if before is not None:
            arguments = [*arguments, assignment("init_from", str(before))]
            job = dataclasses.replace(job, init_from=str(before))
        directory = out / "runs" / name
        runs.append(Run(arm, seed, i, directory, trainer, job, tuple(arguments), before))
        before = directory
    return runs


def check_policies(runs: list[Run], curves: Sequence[CurveConfig] = ()) -> None:
    """Build the policies of an arm's runs, writing nothing, the last with the curves' repairs too.

    UserError when one cannot be built, or not be begun from the one before it.
    """
    before: Any = None
    for run in runs:
        try:
            job: Any = run.job
            if isinstance(job, es_config.ESConfig):
                fresh = dataclasses.replace(job, init_from=None)  # that is not there yet
                policy = es_learner.prepare(fresh)[0]
            elif isinstance(job, ppo_config.PPOConfig):
                fresh_job = dataclasses.replace(job, init_from=None)
                policy = ppo_learner.prepare(fresh_job).actor
            else:
                if isinstance(job, implicit_config.ImplicitBCConfig):
                    check_device(job.device)
                policy = build_policy(job.env_id, job.env, job.policy)[0]
            if before is not None:
                _check_same_policy(before, policy, run)
            before = policy
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


def _check_same_policy(before: Any, policy: Any, run: Run) -> None:
    shapes = [{k: tuple(v.shape) for k, v in p.state_dict().items()} for p in (before, policy)]
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
    cloned = [run for run in runs if isinstance(run.job, implicit_config.ImplicitBCConfig)]
    cloned.sort(key=lambda run: not checkpoint.in_run(run.directory))  # those that began first
    begun: set[tuple[str, Any]] = set()
    for run in cloned:
        job: Any = run.job
        key, saved = (job.demonstrations, job.demos_used), checkpoint.in_run(run.directory)
        if saved:
            identity = checkpoint.load(saved[-1]).state.get("basis", {}).get("demonstrations")
        elif begin and key not in begun and not run.done():
            identity = load_data(job).identity
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
