"""The training runs of a study: which configuration, in which directory, how far, and going on."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training import bc, bc_config, checkpoint, dagger, es, es_config, implicit_bc, run_log
from training import config as configuration
from training import implicit_bc_config as implicit_config
from training.any_config import JobConfig
from training.config import UserError
from training.starting import build_policy
from training.study_config import ArmConfig, StudyConfig, slug, stage_file

__all__ = ["Run", "StoppedError", "load_jobs", "prepare", "runs_of"]


class StoppedError(Exception):
    """A trainer ended early, having said why; `status` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


_COMMANDS: dict[str, Callable[[list[str]], int]] = {"es": es.main, "bc": bc.main}
_LOAD: dict[str, Callable[[str | Path, list[str]], JobConfig]] = {
    "es": es_config.load_config,
    "bc": bc.load_config,
}
_PREPARE: dict[type[Any], Callable[[Any], object]] = {
    es_config.ESConfig: es.prepare,
    bc_config.BCConfig: dagger.prepare,
    implicit_config.ImplicitBCConfig: implicit_bc.prepare,
}
_FREE: dict[type[Any], tuple[str, ...]] = {
    es_config.ESConfig: es_config.FREE_ON_RESUME,
    bc_config.BCConfig: bc_config.FREE_ON_RESUME,
    implicit_config.ImplicitBCConfig: implicit_config.FREE_ON_RESUME,
}


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

    @property
    def label(self) -> str:
        """What is printed before it."""
        return f"train {self.directory.name} ({self.trainer}, {self.job.iterations} iterations)"

    def done(self) -> bool:
        """Whether its last iteration is saved."""
        saved = checkpoint.in_run(self.directory)
        return bool(saved) and int(saved[-1].stem) == self.job.iterations

    def check(self) -> None:
        """UserError when the directory holds a run of another configuration."""
        saved = self.directory / run_log.CONFIG
        if not saved.is_file():
            return
        there = configuration.dump(_LOAD[self.trainer](saved, []))
        here = configuration.dump(self.job)
        free = {*_FREE[type(self.job)], *(["init_from"] if self.stage else [])} - {"iterations"}
        for key in {**there, **here}:
            if key not in free and there.get(key) != here.get(key):
                name, old, new = _difference(key, there.get(key), here.get(key))
                raise UserError(
                    f"{self.directory} was trained with {name} = {old!r}, but the study now has "
                    f"{new!r}; give another --out, or move that run and what followed from it away"
                )

    def do(self) -> None:
        """Train from the beginning, or from its latest checkpoint. Raises StoppedError."""
        if (self.directory / run_log.CONFIG).is_file():
            free = {key: getattr(self.job, key, None) for key in ("workers", "ray_address")}
            words = [f"{key}={json.dumps(value)}" for key, value in free.items() if value]
            arguments = ["--resume", str(self.directory), *(["--set", *words] if words else [])]
        else:
            with contextlib.suppress(FileNotFoundError):  # killed before its first file was written
                (self.directory / checkpoint.CHECKPOINTS).rmdir()
            arguments = ["--out", str(self.directory), *self.arguments]
        with contextlib.redirect_stdout(io.StringIO()):  # its advice is about the run alone
            status = _COMMANDS[self.trainer](arguments)
        if status != 0:
            raise StoppedError(status)


def _difference(key: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """The first key below `key` whose values differ, dotted, and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        below = next(k for k in {**old, **new} if old.get(k) != new.get(k))
        return _difference(f"{key}.{below}", old.get(below), new.get(below))
    return key, old, new


def load_jobs(study: StudyConfig, path: Path, arm: ArmConfig, seed: int) -> list[Any]:
    """The stages' (command line, configuration) for an arm and seed; UserError when one is bad."""
    jobs: list[Any] = []
    for stage in study.stages:
        file = stage_file(path, stage.config)
        values = {**stage.set, **arm.set, **dict.fromkeys(study.seed_keys, seed)}
        if study.workers is not None:
            values["workers"] = study.workers
        if study.ray_address is not None and stage.trainer == "es":
            values["ray_address"] = study.ray_address
        words = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        try:
            job = _LOAD[stage.trainer](file, words)
        except UserError as error:
            raise UserError(f"{path}, arm {arm.name}: {error}") from None
        jobs.append((stage.trainer, ["--config", str(file), "--set", *words], job))
    return jobs


def runs_of(study: StudyConfig, path: Path, out: Path, arm: ArmConfig, seed: int) -> list[Run]:
    """The runs of an arm and seed, in turn; all but the last have their stage in the name.

    UserError when a stage's configuration cannot be loaded.
    """
    runs: list[Run] = []
    jobs = load_jobs(study, path, arm, seed)
    for i, (trainer, arguments, job) in enumerate(jobs):
        name = f"{slug(arm.name)}-s{seed}" + (f"-{i + 1}" if i + 1 < len(jobs) else "")
        if runs:
            start = str(runs[-1].directory)
            arguments = [*arguments, f"init_from={json.dumps(start)}"]
            job = dataclasses.replace(job, init_from=start)
        directory = out / "runs" / name
        runs.append(Run(arm, seed, i, directory, trainer, job, tuple(arguments)))
    return runs


def prepare(runs: list[Run]) -> None:
    """UserError when one of an arm's runs could not begin, or not from the one before it."""
    before: Any = None
    for run in runs:
        try:
            job: Any = run.job
            if run.stage:
                job = dataclasses.replace(job, init_from=None)  # not there yet
            _PREPARE[type(job)](job)
            if len(runs) > 1:
                policy, _ = build_policy(job.env_id, job.env, job.policy)
                if before is not None:
                    _check_same_policy(before, policy, run)
                before = policy
        except UserError as error:
            raise UserError(f"arm {run.arm.name}, stage {run.stage + 1}: {error}") from None


def _check_same_policy(before: Any, policy: Any, run: Run) -> None:
    shapes = [{k: tuple(v.shape) for k, v in p.state_dict().items()} for p in (before, policy)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        old, new = (shape.get(name, "absent") for shape in shapes)
        if old != new:
            raise UserError(
                f"its policy's tensor {name} has shape {new}, but that of the stage before, which "
                f"it starts from, has {old}"
            )
