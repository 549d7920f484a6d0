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
from experiments.fitting import stopped_at
from experiments.registry import task
from experiments.task import Learning
from training.command.files import refusal, write_atomically
from training.evaluation.agents import device_name
from training.runs.fingerprint import differences, fingerprint
from training.runs.run_log import provenance
from training.runs.state_files import State, read_json
from training.settings import config as configuration
from training.settings.config import UserError
from training.studies.config import slug

__all__ = ["Result", "Trial", "trials"]

RESULT = "result.json"


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
    """Of learning and measuring, in the last process that went on with it."""
    provenance: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """A part of an experiment, as `training.studies.schedule` makes it."""

    arm: ArmConfig
    seed: int
    directory: Path
    task: str
    settings: Any = field(repr=False)
    start: Path | None = None
    """The directory of the trial whose model it begins with."""
    data: str | None = None
    device: str = "cpu"
    alone = False

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
        """UserError when a result is there that the experiment would not come to now."""
        if self.done():
            for change in differences(self.result().inputs, self._inputs()):
                raise UserError(
                    f"{self.path} was made with {change.told('the experiment now has')}; give "
                    "another --out, or move that directory away"
                )

    def do(self) -> None:
        """Learn, from the beginning or from where it was, and write the result."""
        began = time.perf_counter()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            known = task(self.task)
            numbers = known.learn(
                Learning(self.settings, self.seed, self.directory, self.start, self.data,
                         self.directory.name, self.device)
            )  # fmt: skip
            assert numbers.keys() == {m.name for m in known.measures}, numbers
            stopped = stopped_at(self.directory)
            result = {
                "inputs": self._inputs(),
                "numbers": {
                    k: v if stopped is None and math.isfinite(v) else None
                    for k, v in numbers.items()
                },
                "stopped_at": stopped,
                "seconds": round(time.perf_counter() - began, 1),
                "provenance": provenance({"seed": self.seed})
                | {"device": device_name(self.device)},
            }
            write_atomically(self.path, (json.dumps(result, indent=1) + "\n").encode())
        except (OSError, MemoryError) as error:
            raise UserError(refusal(error)) from None

    def _inputs(self) -> dict[str, Any]:
        start = None if self.start is None else self.start.name
        settings = configuration.dump(self.settings)
        return fingerprint({"task": self.task, "start": start, "settings": settings})


def trials(
    experiment: ExperimentConfig, out: Path, source: str | Path, quick: bool = False,
    data: str | None = None,
) -> list[Trial]:  # fmt: skip
    """All of an experiment: of each seed all arms. UserError when settings are wrong."""
    found = []
    settings = {arm.name: settings_of(experiment, arm, quick, source) for arm in experiment.arms}
    for seed in experiment.seeds:
        for arm in experiment.arms:
            start = None if arm.start_from is None else _place(out, arm.start_from, seed)
            place = _place(out, arm.name, seed)
            own = settings[arm.name]
            found.append(
                Trial(arm, seed, place, experiment.task, own, start, data, experiment.device)
            )
    return found


def _place(out: Path, arm: str, seed: int) -> Path:
    return out / "trials" / f"{slug(arm)}-s{seed}"
