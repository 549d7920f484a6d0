"""A search for settings: Optuna chooses them, each trial is a run as any other (extra `optuna`).

    DIR/search.json       what is searched; the same command goes on, another is refused
    DIR/search.db         Optuna's own record (SQLite; `optuna-dashboard sqlite:///DIR/search.db`)
    DIR/trials/0003/      a run, resumable
    DIR/trials.csv        the table, best first

What is chosen for a trial follows from the seed, its number and the trials before. So a search that
was stopped comes to the same as one that was not.
"""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

import foveate_extras
from training.algorithms.registry import load_any_config, trainer_of
from training.command.errors import NotFiniteError
from training.command.files import write_atomically
from training.compare.jobs import DONE, MISSING, Job, Status
from training.compare.search_space import Choice, Interval
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.metrics import read_metrics
from training.io.run_log import has_rows
from training.io.state_files import read_inputs, write_inputs
from training.runner import train

__all__ = ["Search", "Trial", "metric_of", "table"]

TABLE, RECORD, DATABASE = "trials.csv", "search.json", "search.db"


@dataclass(frozen=True)
class Trial:
    """The result of a trial."""

    number: int
    run: Path
    settings: dict[str, Any]
    value: float
    """NaN where it has none."""
    reason: str = ""
    """Why it has none."""


@dataclass(frozen=True)
class TrialJob(Job):
    """Trains one configuration that Optuna chose and reports its value."""

    search: Search = field(repr=False)
    study: Any = field(repr=False)
    """Of Optuna."""
    trial: Any = field(repr=False)

    @property
    def model(self) -> Path:
        return self.search.place(self.trial.number)

    @property
    def label(self) -> str:
        chosen = ", ".join(f"{key} = {value}" for key, value in self.trial.params.items())
        return f"trial {self.trial.number:04d}: {chosen}"

    def status(self) -> Status:
        """Done once Optuna has its value, or the reason why it has none."""
        found = self.study.trials[self.trial.number]
        return DONE if found.state.is_finished() else MISSING

    def execute(self) -> None:
        """Train it, or resume training it, and report the value to Optuna."""
        import optuna

        number, search = self.trial.number, self.search
        try:
            train(search.load(self.trial.params), self.model)
            value, reason = search.value_of(self.model)
        except UserError as error:
            if not isinstance(error, NotFiniteError) and has_rows(self.model):
                raise  # the run's files are wrong, and can be repaired
            value, reason = math.nan, " ".join(str(error).split())
        if math.isnan(value):
            print(f"failed: {reason}", flush=True)
            self.trial.set_user_attr("reason", reason)
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)
        else:
            print(f"trial {number:04d}: {search.metric} = {value:.6g}", flush=True)
            self.study.tell(number, value)


@dataclass(frozen=True)
class Search:
    """What is searched, and where it is kept."""

    out: Path
    config: Path
    settings: Sequence[str]
    """Words of --set, the same for all trials."""
    space: dict[str, Interval | Choice]
    metric: str
    """Column of metrics.csv."""
    over: int
    """Last iterations whose mean is a trial's value."""
    maximise: bool
    seed: int = 0
    free: tuple[str, ...] = field(default=("workers", "tracker"), repr=False)
    """Settings that change no result."""

    def check(self) -> None:
        """UserError where a configuration that may be chosen is wrong, or where DIR holds another
        search."""
        for key, values in self.space.items():
            for value in values.ends:
                first = {name: one.ends[0] for name, one in self.space.items()}
                self.load({**first, key: value})
        inputs = self._inputs()
        path = self.out / RECORD
        if path.exists():
            for change in differences(read_inputs(path), inputs):
                raise UserError(
                    f"{path} was made with {change.describe('now it is')}; give another --out"
                )
        write_inputs(path, inputs)

    def _inputs(self) -> dict[str, Any]:
        plain = configuration.dump(load_any_config(self.config, self.settings))
        return fingerprint(
            {
                "config": {key: plain[key] for key in plain if key not in self.free},
                "space": {key: repr(one) for key, one in self.space.items()},
                "metric": self.metric,
                "over": self.over,
                "direction": self.direction,
                "seed": self.seed,
            }
        )

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """In Optuna's words."""
        return "maximize" if self.maximise else "minimize"

    def load(self, chosen: dict[str, Any]) -> Any:
        """The configuration of a trial."""
        words = [self.space[key].setting(key, value) for key, value in chosen.items()]
        return load_any_config(self.config, [*self.settings, *words])

    def run(self, trials: int) -> list[Trial]:
        """Make what is missing of so many trials, or go on with it; all of them, best first.

        UserError where Optuna's record cannot be read or written.
        """
        foveate_extras.require("training.search", "optuna")
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return self._run(trials)
        except (StorageInternalError, SQLAlchemyError) as error:
            said = " ".join(str(error).split())
            raise UserError(f"{self.out / DATABASE} cannot be used: {said}") from None

    def _run(self, trials: int) -> list[Trial]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        url = f"sqlite:///{(self.out / DATABASE).resolve()}"
        study = optuna.create_study(
            storage=url, study_name="search", direction=self.direction, load_if_exists=True
        )
        space = {key: one.distribution(optuna) for key, one in self.space.items()}
        for trial in study.trials:
            if trial.state.is_finished():
                continue
            if trial.params.keys() == space.keys():
                self._make(
                    TrialJob(self, study, optuna.trial.Trial(study, trial._trial_id)), trials
                )
            else:  # killed while it was chosen
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        while len(self.made(study)) < trials:
            study.sampler = self._sampler(optuna, len(study.trials))
            self._make(TrialJob(self, study, study.ask(space)), trials)
        return self.made(study)

    def _make(self, job: TrialJob, trials: int) -> None:
        """Run one of so many trials and write the table anew."""
        print(f"[{len(self.made(job.study)) + 1}/{trials}] {job.label}", flush=True)
        job.execute()
        self._write(self.made(job.study))

    def _sampler(self, optuna: Any, number: int) -> Any:
        """That of a trial, whoever made those before."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental parts of it
            seed = int(np.random.default_rng((self.seed, number)).integers(2**31))
            return optuna.samplers.TPESampler(seed=seed)

    def place(self, number: int) -> Path:
        """The run directory of a trial."""
        return self.out / "trials" / f"{number:04d}"

    def value_of(self, run: Path) -> tuple[float, str]:
        """The value of a finished run, and why it has none."""
        curve = read_metrics(run)
        values = curve.columns[self.metric][-self.over :]
        values = values[np.isfinite(values)]
        if not len(values):
            return math.nan, f"{self.metric} has no number in the last {self.over} iterations"
        return float(values.mean()), ""

    def made(self, study: Any) -> list[Trial]:
        """Finished trials, best first, those without a value last; of those that were not chosen
        to the end none."""
        found = [
            Trial(
                t.number, self.place(t.number), dict(t.params),
                math.nan if t.value is None else t.value, t.user_attrs.get("reason", ""),
            )
            for t in study.trials
            if t.state.is_finished() and t.params.keys() == self.space.keys()
        ]  # fmt: skip
        sign = -1 if self.maximise else 1
        return sorted(found, key=lambda t: (math.isnan(t.value), sign * t.value, t.number))

    def _write(self, trials: Sequence[Trial]) -> None:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["trial", self.metric, *self.space, "reason"])
        for trial in trials:
            value = "" if math.isnan(trial.value) else repr(trial.value)
            table.writerow([f"{trial.number:04d}", value, *trial.settings.values(), trial.reason])
        write_atomically(self.out / TABLE, text.getvalue().encode())


def metric_of(config: Any, given: str | None) -> str:
    """The column that a trial is judged by; UserError where the trainer writes no such one."""
    columns = trainer_of(config).columns(config.env_id)
    usual = ("center_reward", "success", "reward_max")
    metric = next((name for name in usual if name in columns), None) if given is None else given
    if metric not in columns[1:]:
        raise UserError(f"--metric must be one of {', '.join(columns[1:])}, got {given}")
    return str(metric)


def table(search: Search, trials: Sequence[Trial], most: int = 20) -> str:
    """The best of the trials, as lines."""
    heads = ["trial", search.metric, *search.space]
    lines = [heads]
    for t in trials[:most]:
        value = t.reason if math.isnan(t.value) else f"{t.value:.6g}"
        lines.append([f"{t.number:04d}", value, *(_short(v) for v in t.settings.values())])
    widths = [min(max(len(line[i]) for line in lines), 40) for i in range(len(heads))]
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
                     for line in lines)  # fmt: skip


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
