"""An experiment: the matrix of its trials, its directory, and its record."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic.dataclasses import dataclass as checked_dataclass

from experiments.config import ExperimentConfig, settings_of, task
from experiments.fitting import METRICS, facts_of
from experiments.page import render
from experiments.results import FACTS, TABLE, Curves, Facts, Results, read_record
from experiments.task import Learning
from training.analysis.agents import check_device, device_name
from training.command.errors import command_line
from training.command.files import refusal, write_json, writing
from training.compare.config import slug
from training.compare.jobs import (
    DONE,
    MISSING,
    PAGE,
    Comparison,
    Job,
    Status,
    check_owner,
    missing_jobs,
    stale,
    write_changed,
)
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.run_log import provenance
from training.io.state_files import State, read_inputs, read_json, write_inputs

CONFIG = "experiment.yaml"
INPUTS, RESULT = "inputs.json", "result.json"


@checked_dataclass(frozen=True, config=State)
class Result:
    """The result of a trial, as stored in its file."""

    inputs: dict[str, Any]
    """Inputs that it was made from."""
    numbers: dict[str, float | None]
    """Values by measure; None: not a number, as all are where training stopped."""
    stopped_at: int | None = None
    """The step whose loss was not finite; None: none."""
    seconds: float = 0.0
    """Time of training and measuring."""
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        """The commit of the code that made it."""
        return str((self.provenance.get("git") or {}).get("commit", ""))

    @property
    def machine(self) -> str:
        """The GPU or processor that the model was trained on."""
        device = self.provenance.get("device", "cpu")
        if device == "cpu":
            device = (self.provenance.get("hardware") or {}).get("cpu") or ""
        return str(device)


@dataclass(frozen=True)
class Trial(Job):
    """Trains and measures one variant's model with one seed; it resumes when run again."""

    variant: str
    task: str
    learning: Learning
    origin: Trial | None = field(default=None, repr=False)
    """The trial whose model it begins with."""

    @property
    def requires(self) -> Path | None:
        return self.learning.start

    @property
    def model(self) -> Path:
        return self.learning.folder

    @property
    def label(self) -> str:
        return f"train {self.learning.label}"

    def result(self) -> Result | None:
        """The result, None if it is missing. Raises UserError if its file is damaged."""
        path = self.model / RESULT
        return read_json(Result, path) if path.is_file() else None

    def status(self) -> Status:
        """Stale: a result, finished or not, was made from other inputs. Inputs that an older file
        does not name are not compared."""
        path, result = self.model / INPUTS, self.result()
        if result is not None:
            path, made = self.model / RESULT, result.inputs
        elif path.is_file():
            made = read_inputs(path)
        else:
            return MISSING
        now = self.inputs()
        for change in differences(made, {name: now[name] for name in made.keys() & now.keys()}):
            return stale(f"{path} was made", change, "experiment", "that directory")
        return MISSING if result is None else DONE

    def execute(self) -> None:
        """Train, from the beginning or from the saved state, and write the result."""
        began = time.perf_counter()
        try:
            self.model.mkdir(parents=True, exist_ok=True)
            write_inputs(self.model / INPUTS, self.inputs())
            state = facts_of(self.model)
            before_s = (state.rows[-1].get("wall_s") or 0.0) if state and state.rows else 0.0
            numbers = task(self.task).learn(self.learning)
            assert numbers.keys() == {m.name for m in task(self.task).measures}, numbers
            state = facts_of(self.model)
            stopped = None if state is None else state.diverged_at
            result = {
                "inputs": self.inputs(),
                "numbers": {
                    name: value if stopped is None and math.isfinite(value) else None
                    for name, value in numbers.items()
                },
                "stopped_at": stopped,
                "seconds": round(before_s + time.perf_counter() - began, 1),
                "provenance": provenance({"seed": self.learning.seed})
                | {"device": device_name(self.learning.device)},
            }
            write_json(self.model / RESULT, result)
        except (OSError, MemoryError) as error:
            raise UserError(refusal(error)) from None

    def inputs(self) -> dict[str, Any]:
        """The trial's inputs as JSON data."""
        known = {
            "task": self.task,
            "start": None if self.origin is None else self.origin.model.name,
            "start_inputs": None if self.origin is None else self.origin.inputs(),
            "settings": configuration.dump(self.learning.settings),
        }
        return fingerprint(known)


@dataclass(frozen=True)
class Experiment(Comparison):
    """Variants of a model that learn the same task with several seeds."""

    settings: ExperimentConfig
    path: Path
    """Its configuration file."""
    out: Path
    words: Sequence[str] = ()
    """Arguments of `python -m experiments`, for the command on the page."""
    quick: bool = False
    """Whether to use the settings of --quick."""
    data: str | None = None
    """Folder with the data."""
    noun, config_file = "experiment", CONFIG

    @cached_property
    def trials(self) -> list[Trial]:
        """All trials: all variants of each seed. Raises UserError if settings are wrong."""
        found: dict[tuple[str, int], Trial] = {}
        settings = {
            variant.name: settings_of(self.settings, variant, self.quick, self.path)
            for variant in self.settings.arms
        }
        for seed, variant in product(self.settings.seeds, self.settings.arms):
            name, start, label = variant.name, variant.start_from, f"{slug(variant.name)}-s{seed}"
            origin = None if start is None else found[start, seed]
            folder = None if origin is None else origin.model
            learning = Learning(
                settings[name], seed, self.out / "trials" / label, folder,
                self.data, label, self.settings.device,
            )  # fmt: skip
            found[name, seed] = Trial(name, self.settings.task, learning, origin)
        return [*found.values()]

    def jobs(self) -> Sequence[Job]:
        check_device(self.settings.device)
        check_owner(self.out, CONFIG, self.settings.title, self.noun)
        return self.trials

    def config_text(self) -> str:
        return configuration.to_yaml(
            configuration.dump(self.settings), "This experiment, resolved."
        )

    def check(self, missing: Sequence[Job]) -> None:
        """UserError where data are missing, or a variant cannot be built."""
        first = {job.variant: job for job in reversed(missing) if isinstance(job, Trial)}
        for trial in reversed(first.values()):
            try:
                task(self.settings.task).check(trial.learning.settings, self.data)
            except UserError:
                raise
            except ValueError as error:
                raise UserError(f"variant {trial.variant}: {error}") from None

    def prepare(self, missing: Sequence[Job]) -> None:
        """Nothing to prepare."""

    def results(self) -> Results:
        """The results of the trials that are done. Raises UserError if a file is damaged."""
        done = [(trial, result) for trial in self.trials if (result := trial.result()) is not None]
        found: dict[str, dict[int, Result]] = {}
        for trial, result in done:
            found.setdefault(trial.variant, {})[trial.learning.seed] = result
        models = {
            name: {seed: result.numbers for seed, result in own.items()}
            for name, own in found.items()
        }
        facts = Facts(
            {n: float(np.mean([one.seconds for one in own.values()])) for n, own in found.items()},
            tuple(sorted({result.commit for _, result in done} - {""})),
            tuple(sorted({result.machine for _, result in done} - {""})),
        )
        return Results.of(self.settings, models, facts, _curves([trial for trial, _ in done]))

    def write_page(self, missing: Sequence[str], failed: Sequence[str] = ()) -> bool:
        return self._write(self.out, self.results(), missing, failed)

    def _write(
        self, place: Path, results: Results, missing: Sequence[str], failed: Sequence[str] = ()
    ) -> bool:
        page = render(results, self.command(), missing, failed)
        files = {TABLE: results.table(), PAGE: page}
        changed = [write_changed(place / name, text.encode()) for name, text in files.items()]
        return any(changed)

    def run(self, only: Sequence[str] = (), page_alone: bool = False) -> int:
        """Write the outputs of a comparison; a record's page is written from the record."""
        if not (page_alone and (self.out / FACTS).is_file()):
            return super().run(only, page_alone)
        results = read_record(self.settings, self.out)
        missing = [
            trial.label for trial in self.trials
            if trial.learning.seed not in results.models.get(trial.variant, {})
        ]  # fmt: skip
        with self.file_errors():
            self._write(self.out, results, missing)
        print(f"wrote {self.out / PAGE}")
        return 0

    def command(self, out: Path | None = None, only: Sequence[str] = ()) -> str:
        words = [*self.words, *(["--out", str(out)] if out else [])]
        return command_line("experiments", *words, *(["--only", *only] if only else []))

    def write_record(self, record: Path) -> None:
        """Write the tables and the page of the existing results into a directory for committing.

        Raises UserError if there is no result, or a stale one.
        """
        jobs = self.jobs()
        missing = [job.label for job in missing_jobs(jobs)]
        if len(missing) == len(jobs):
            raise UserError(f"--record needs results in {self.out}, and there are none")
        results = self.results()
        with writing(record):
            record.mkdir(parents=True, exist_ok=True)
            results.write_record(record)
            self._write(record, results, missing)
        print(f"wrote {record}")


def _curves(trials: Sequence[Trial]) -> Curves:
    """Curves of the metrics' columns that all seeds of a variant have."""
    runs: dict[str, list[list[dict[str, float]]]] = {}
    for trial in trials:
        path = trial.model / METRICS
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
            runs.setdefault(trial.variant, []).append(rows)
    found: dict[str, dict[str, Any]] = {}
    for name, own in runs.items():
        for together in zip(*own, strict=False):
            for key in together[0].keys() - {"step", "wall_s"}:
                values = np.array([row[key] for row in together])
                low, high = float(values.min()), float(values.max())
                point = (together[0]["step"], float(values.mean()), low, high)
                found.setdefault(key, {}).setdefault(name, []).append(point)
    return found
