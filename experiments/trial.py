"""A model of an experiment, trained and measured once; it resumes after an interruption."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass as checked_dataclass

from experiments.config import ExperimentConfig, VariantConfig, settings_of
from experiments.fitting import facts_of
from experiments.registry import task
from experiments.task import Learning
from training.analysis.agents import device_name
from training.command.files import refusal, write_atomically
from training.compare.config import slug
from training.compare.jobs import DONE, MISSING, Job, Status
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.run_log import provenance
from training.io.state_files import State, read_inputs, read_json, write_inputs

__all__ = ["Result", "Trial", "trials"]

INPUTS, RESULT = "inputs.json", "result.json"


@checked_dataclass(frozen=True, config=State)
class Result:
    """The result of a trial, as stored in its file."""

    inputs: dict[str, Any]
    """What it was made from."""
    numbers: dict[str, float | None]
    """By measure; None: not a number, as all are where learning stopped."""
    stopped_at: int | None = None
    """The step whose loss was not finite; None: none."""
    seconds: float = 0.0
    """Of learning and measuring."""
    provenance: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial(Job):
    """Trains and measures one variant's model with one seed."""

    variant: VariantConfig
    seed: int
    directory: Path
    task: str
    settings: Any = field(repr=False)
    origin: Trial | None = field(default=None, repr=False)
    """The trial whose model it begins with."""
    data: str | None = None
    device: str = "cpu"

    @property
    def requires(self) -> Path | None:
        return None if self.origin is None else self.origin.directory

    @property
    def model(self) -> Path:
        return self.directory

    @property
    def label(self) -> str:
        return f"train {self.directory.name}"

    @property
    def path(self) -> Path:
        """The result file."""
        return self.directory / RESULT

    def result(self) -> Result | None:
        """The result, None if it is missing. Raises UserError if its file is damaged."""
        return read_json(Result, self.path) if self.path.is_file() else None

    def status(self) -> Status:
        """Stale: a result, finished or not, was made from other inputs. Inputs that an older file
        does not name are not compared."""
        started, result = self.directory / INPUTS, self.result()
        if result is not None:
            path, made = self.path, result.inputs
        elif started.is_file():
            path, made = started, read_inputs(started)
        else:
            return MISSING
        now = self.inputs()
        for change in differences(made, {name: now[name] for name in made.keys() & now.keys()}):
            reason = (
                f"{path} was made with {change.describe('the experiment now has')}; give another "
                "--out, or move that directory away"
            )
            return Status("stale", reason, change)
        return MISSING if result is None else DONE

    def execute(self) -> None:
        """Train, from the beginning or from the saved state, and write the result."""
        began = time.perf_counter()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_inputs(self.directory / INPUTS, self.inputs())
            before = _seconds(self.directory)
            known = task(self.task)
            numbers = known.learn(
                Learning(self.settings, self.seed, self.directory, self.requires, self.data,
                         self.directory.name, self.device)
            )  # fmt: skip
            assert numbers.keys() == {m.name for m in known.measures}, numbers
            fitted = facts_of(self.directory)
            stopped = None if fitted is None else fitted.diverged_at
            result = {
                "inputs": self.inputs(),
                "numbers": {
                    k: v if stopped is None and math.isfinite(v) else None
                    for k, v in numbers.items()
                },
                "stopped_at": stopped,
                "seconds": round(before + time.perf_counter() - began, 1),
                "provenance": provenance({"seed": self.seed})
                | {"device": device_name(self.device)},
            }
            write_atomically(self.path, (json.dumps(result, indent=1) + "\n").encode())
        except (OSError, MemoryError) as error:
            raise UserError(refusal(error)) from None

    def inputs(self) -> dict[str, Any]:
        """The trial's inputs as JSON data."""
        known = {
            "task": self.task,
            "start": None if self.origin is None else self.origin.directory.name,
            "start_inputs": None if self.origin is None else self.origin.inputs(),
            "settings": configuration.dump(self.settings),
        }
        return fingerprint(known)


def trials(
    experiment: ExperimentConfig, out: Path, source: str | Path, quick: bool = False,
    data: str | None = None,
) -> list[Trial]:  # fmt: skip
    """All trials of an experiment: all variants of each seed. Raises UserError if settings are
    wrong.
    """
    found: list[Trial] = []
    settings = {one.name: settings_of(experiment, one, quick, source) for one in experiment.arms}
    for seed in experiment.seeds:
        of_seed: dict[str, Trial] = {}
        for variant in experiment.arms:
            place = out / "trials" / f"{slug(variant.name)}-s{seed}"
            origin = None if variant.start_from is None else of_seed[variant.start_from]
            of_seed[variant.name] = Trial(
                variant, seed, place, experiment.task, settings[variant.name], origin, data,
                experiment.device,
            )  # fmt: skip
        found += of_seed.values()
    return found


def _seconds(folder: Path) -> float:
    """Seconds of fitting so far."""
    fitted = facts_of(folder)
    return 0.0 if fitted is None or not fitted.rows else fitted.rows[-1].get("wall_s") or 0.0
