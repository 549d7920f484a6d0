"""One arm with one seed: learned and measured once, and gone on with after any interruption."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass as checked_dataclass

from experiments.config import ArmConfig, ExperimentConfig, settings_of
from experiments.fitting import facts_of
from experiments.registry import task
from experiments.task import Learning
from training.analysis.agents import device_name
from training.command.files import refusal, write_atomically
from training.compare.config import slug
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.inputs_file import read_inputs, write_inputs
from training.io.run_log import provenance
from training.io.state_files import State, read_json

__all__ = ["Result", "Trial", "trials"]

INPUTS, RESULT = "inputs.json", "result.json"


@checked_dataclass(frozen=True, config=State)
class Result:
    """What a trial came to, as its file says."""

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
class Trial:
    """A part of an experiment, as `training.compare.schedule` makes it."""

    arm: ArmConfig
    seed: int
    directory: Path
    task: str
    settings: Any = field(repr=False)
    origin: Trial | None = field(default=None, repr=False)
    """The trial whose model it begins with."""
    data: str | None = None
    device: str = "cpu"
    alone = False

    @property
    def start(self) -> Path | None:
        """The directory of the model that it begins with."""
        return None if self.origin is None else self.origin.directory

    @property
    def trained(self) -> Path:
        """From where others start."""
        return self.directory

    @property
    def label(self) -> str:
        """What is printed before it."""
        return f"learn {self.directory.name}"

    @property
    def path(self) -> Path:
        """The result file."""
        return self.directory / RESULT

    def done(self) -> bool:
        """Whether the result is there."""
        return self.path.is_file()

    def result(self) -> Result:
        """What is there. UserError where it is damaged."""
        return read_json(Result, self.path)

    def check(self) -> None:
        """UserError when a result is there, or one is begun, that the experiment would not come
        to now. What a file of before does not say is not compared."""
        begun = self.directory / INPUTS
        if self.done():
            path, made = self.path, self.result().inputs
        elif begun.is_file():
            path, made = begun, read_inputs(begun)
        else:
            return
        now = self.inputs()
        for change in differences(made, {name: now[name] for name in made.keys() & now.keys()}):
            raise UserError(
                f"{path} was made with {change.told('the experiment now has')}; give another "
                "--out, or move that directory away"
            )

    def do(self) -> None:
        """Learn, from the beginning or from where it was, and write the result."""
        began = time.perf_counter()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_inputs(self.directory / INPUTS, self.inputs())
            before = _seconds(self.directory)
            known = task(self.task)
            numbers = known.learn(
                Learning(self.settings, self.seed, self.directory, self.start, self.data,
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
        """What it is made from, as JSON has it."""
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
    """All of an experiment: of each seed all arms. UserError when settings are wrong."""
    found: list[Trial] = []
    settings = {arm.name: settings_of(experiment, arm, quick, source) for arm in experiment.arms}
    for seed in experiment.seeds:
        of_seed: dict[str, Trial] = {}
        for arm in experiment.arms:
            place = out / "trials" / f"{slug(arm.name)}-s{seed}"
            own = settings[arm.name]
            origin = None if arm.start_from is None else of_seed[arm.start_from]
            of_seed[arm.name] = Trial(
                arm, seed, place, experiment.task, own, origin, data, experiment.device
            )
        found += of_seed.values()
    return found


def _seconds(folder: Path) -> float:
    """For which a model was fitted before."""
    fitted = facts_of(folder)
    return 0.0 if fitted is None or not fitted.rows else fitted.rows[-1].get("wall_s") or 0.0
