"""A search for settings: Optuna chooses them, each trial is a run like any other (extra `optuna`).

    DIR/search.json       what is searched; the same command resumes, another is refused
    DIR/search.db         Optuna's own record (SQLite; `optuna-dashboard sqlite:///DIR/search.db`)
    DIR/trials/0003/      a run, resumable
    DIR/trials.csv        the table, best first

The choice of a trial follows from the seed, its number and the trials before, so a search that was
interrupted gives the same results as one that was not.
"""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

import foveate_extras
from training.algorithms.registry import load_any_config, trainer_of
from training.command.errors import NotFiniteError
from training.command.files import CONFIG, METRICS, write_atomically
from training.compare.jobs import DONE, MISSING, Job, Status
from training.compare.record import csv_text
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.metrics import read_metrics
from training.io.overrides import assignment
from training.io.run_log import has_rows
from training.io.state_files import read_inputs, write_inputs
from training.io.yaml_text import parse, read_yaml
from training.runner import train

TABLE, RECORD, DATABASE = "trials.csv", "search.json", "search.db"
_NO_RESULT = ("workers", "tracker")
"""Settings that change no result."""
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included; whole ones where both are written so."""

    low: float
    high: float
    log: bool
    whole: bool

    def distribution(self, optuna: Any) -> Any:
        """The distribution of Optuna."""
        kind = optuna.distributions
        if self.whole:
            return kind.IntDistribution(int(self.low), int(self.high), log=self.log)
        return kind.FloatDistribution(self.low, self.high, log=self.log)

    def setting(self, key: str, value: Any) -> str:
        """The word of --set that gives this value."""
        return assignment(key, value)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible."""
        return tuple(map(int if self.whole else float, (self.low, self.high)))


@dataclass(frozen=True)
class Choice:
    """One of some values, each as it was typed."""

    words: tuple[str, ...]

    def distribution(self, optuna: Any) -> Any:
        """The distribution of Optuna."""
        return optuna.distributions.CategoricalDistribution(self.words)

    def setting(self, key: str, value: Any) -> str:
        """The word of --set that gives this value."""
        return f"{key}={value}"

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible."""
        return self.words


def _at(data: Any, key: str) -> Any:
    """The value at a dotted key; None where there is none."""
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def read_space(words: Sequence[str]) -> dict[str, Interval | Choice]:
    """`KEY=LOW:HIGH`, `KEY=log:LOW:HIGH` and `KEY=A|B|C`, by key. UserError for other words."""
    space: dict[str, Interval | Choice] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not key or not equals:
            raise UserError(f"--search takes KEY=LOW:HIGH or KEY=A|B|C, got {word!r}")
        if key in space:
            raise UserError(f"--search has {key} twice")
        space[key] = _read(word, text.strip())
    if not space:
        raise UserError("--search must name at least one setting, such as sigma=log:0.01:1")
    return space


def _read(word: str, text: str) -> Interval | Choice:
    found = re.fullmatch(rf"(log:)?({_NUMBER}):({_NUMBER})", text)
    if found:
        low, high, log = float(found[2]), float(found[3]), found[1] is not None
        if not low < high or (log and low <= 0):
            raise UserError(
                f"--search {word}: the first number must be below the second"
                f"{', and above 0' if log else ''}"
            )
        whole = all(re.fullmatch(r"[-+]?\d+", part) for part in (found[2], found[3]))
        return Interval(low, high, log, whole)
    words = tuple(part.strip() for part in text.split("|"))
    if len(words) < 2 or len(set(words)) < len(words) or not all(words):
        raise UserError(
            f"--search takes KEY=LOW:HIGH, KEY=log:LOW:HIGH or KEY=A|B|C of different values, got "
            f"{word!r}"
        )
    for part in words:
        parse(part, f"--search {word}")
    return Choice(words)


def metric_of(config: Any, given: str | None) -> str:
    """The column that trials are judged by; UserError where the trainer writes no such one."""
    columns = trainer_of(config).columns(config.env_id)
    usual = ("center_reward", "success", "reward_max")
    metric = next((name for name in usual if name in columns), None) if given is None else given
    if metric not in columns[1:]:
        raise UserError(f"--metric must be one of {', '.join(columns[1:])}, got {given}")
    return str(metric)


@dataclass(frozen=True)
class Trial:
    """The result of a trial."""

    number: int
    run: Path
    settings: dict[str, Any]
    value: float
    """Value of the trial; NaN if it has none."""
    reason: str = ""
    """Reason for a missing value."""


@dataclass(frozen=True)
class Search:
    """The settings that are searched, and the directory."""

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

    def check(self) -> None:
        """UserError where a configuration that may be chosen is wrong, or where DIR holds another
        search."""
        first = {name: one.ends[0] for name, one in self.space.items()}
        for key, values in self.space.items():
            for value in values.ends:
                self.load({**first, key: value})
        plain = configuration.dump(load_any_config(self.config, self.settings))
        inputs = fingerprint(
            {
                "config": {key: plain[key] for key in plain if key not in _NO_RESULT},
                "space": {key: repr(one) for key, one in self.space.items()},
                "metric": self.metric, "over": self.over, "direction": self.direction,
                "seed": self.seed,
            }
        )  # fmt: skip
        path = self.out / RECORD
        if path.exists():
            for change in differences(read_inputs(path), inputs):
                raise UserError(
                    f"{path} was made with {change.describe('now it is')}; give another --out"
                )
        write_inputs(path, inputs)

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """The direction in Optuna's words."""
        return "maximize" if self.maximise else "minimize"

    def load(self, chosen: dict[str, Any]) -> Any:
        """The configuration of a trial."""
        words = [self.space[key].setting(key, value) for key, value in chosen.items()]
        return load_any_config(self.config, [*self.settings, *words])

    def run(self, trials: int) -> list[Trial]:
        """Run or resume the missing trials up to this number; return all trials, best first.

        UserError where Optuna's record cannot be read or written.
        """
        foveate_extras.require("training.search", "optuna")
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._storage() as storage:
                return self._run(storage, trials)
        except (StorageInternalError, SQLAlchemyError) as error:
            said = " ".join(str(error).split())
            raise UserError(f"{self.out / DATABASE} cannot be used: {said}") from None

    @contextmanager
    def _storage(self) -> Iterator[Any]:
        """Optuna's record, whose connections are closed at the end."""
        import optuna
        from sqlalchemy.pool import NullPool

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with self._readable():
            url = f"sqlite:///{(self.out / DATABASE).resolve()}"
            storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": NullPool})
        try:
            yield storage
        finally:
            storage.remove_session()

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """UserError where Optuna's record is damaged, which raises errors of many classes."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{self.out / DATABASE} cannot be used: {said}") from None

    def _run(self, storage: Any, trials: int) -> list[Trial]:
        import optuna

        with self._readable():
            study = optuna.create_study(
                storage=storage, study_name="search", direction=self.direction, load_if_exists=True
            )
            self._compare_with_runs(study.trials)
        space = {key: one.distribution(optuna) for key, one in self.space.items()}

        def execute(trial: Any) -> None:
            job = TrialJob(self, study, trial)
            print(f"[{len(self.made(study)) + 1}/{trials}] {job.label}", flush=True)
            job.execute()
            self._write_table(self.made(study))

        for trial in study.trials:
            if trial.state.is_finished():
                continue
            if trial.params.keys() != space.keys():  # killed while it was chosen
                apart = optuna.create_study(
                    direction=self.direction, sampler=self._sampler(trial.number)
                )
                apart.add_trials(t for t in study.trials[: trial.number] if t.state.is_finished())
                for key, value in apart.ask(space).params.items():
                    if key not in trial.params:
                        inner = space[key].to_internal_repr(value)
                        study._storage.set_trial_param(trial._trial_id, key, inner, space[key])
            execute(optuna.trial.Trial(study, trial._trial_id))
        while len(self.made(study)) < trials:
            study.sampler = self._sampler(len(study.trials))
            execute(study.ask(space))
        made = self.made(study)
        self._write_table(made)  # also where a kill came between a trial's record and its row
        return made

    def _sampler(self, number: int) -> Any:
        """Return the sampler that chooses the trial of this number."""
        import optuna

        seed = int(np.random.default_rng((self.seed, number)).integers(2**31))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental parts of it
            return optuna.samplers.TPESampler(seed=seed)

    def _compare_with_runs(self, trials: Sequence[Any]) -> None:
        """UserError where Optuna's record has other settings or values than the trials' runs."""
        for trial in trials:
            run = self.out / "trials" / f"{trial.number:04d}"
            if trial.params.keys() != self.space.keys() or not (run / CONFIG).exists():
                continue
            made, here = read_yaml(run / CONFIG), configuration.dump(self.load(trial.params))
            pairs = [(key, _at(made, key), _at(here, key)) for key in self.space]
            if trial.value is not None and (run / METRICS).exists():
                pairs.append((self.metric, self.value_of(run)[0], trial.value))
            for key, there, said in pairs:
                if there != said:
                    raise UserError(
                        f"{self.out / DATABASE} is damaged: trial {trial.number:04d} has {key} = "
                        f"{said}, and its run {there}"
                    )

    def value_of(self, run: Path) -> tuple[float, str]:
        """The value of a finished run, and why it has none."""
        columns = read_metrics(run).columns
        if self.metric not in columns:
            raise UserError(f"{run / METRICS} is damaged: it has no column {self.metric}")
        values = columns[self.metric][-self.over :]
        values = values[np.isfinite(values)]
        if not len(values):
            return math.nan, f"{self.metric} has no number in the last {self.over} iterations"
        return float(values.mean()), ""

    def made(self, study: Any) -> list[Trial]:
        """Finished trials, best first, those without a value last. Trials that were killed while
        they were chosen are left out."""
        found = [
            Trial(
                t.number, self.out / "trials" / f"{t.number:04d}", dict(t.params),
                math.nan if t.value is None else t.value, t.user_attrs.get("reason", ""),
            )
            for t in study.trials
            if t.state.is_finished() and t.params.keys() == self.space.keys()
        ]  # fmt: skip
        sign = -1 if self.maximise else 1
        return sorted(found, key=lambda t: (math.isnan(t.value), sign * t.value, t.number))

    def _write_table(self, trials: Sequence[Trial]) -> None:
        rows: list[list[Any]] = [["trial", self.metric, *self.space, "reason"]]
        for trial in trials:
            value = "" if math.isnan(trial.value) else repr(trial.value)
            rows.append([f"{trial.number:04d}", value, *trial.settings.values(), trial.reason])
        write_atomically(self.out / TABLE, csv_text(rows).encode())


@dataclass(frozen=True)
class TrialJob(Job):
    """Trains one configuration that Optuna chose and reports its value."""

    search: Search = field(repr=False)
    study: Any = field(repr=False)
    """The study of Optuna."""
    trial: Any = field(repr=False)

    @property
    def model(self) -> Path:
        return self.search.out / "trials" / f"{self.trial.number:04d}"

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


def table(search: Search, trials: Sequence[Trial], most: int = 20) -> str:
    """The best of the trials, as lines."""

    def short(value: Any) -> str:
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = [["trial", search.metric, *search.space]]
    for t in trials[:most]:
        value = t.reason if math.isnan(t.value) else short(t.value)
        lines.append([f"{t.number:04d}", value, *map(short, t.settings.values())])
    widths = [min(max(map(len, column)), 40) for column in zip(*lines, strict=True)]
    padded = ([f"{c:<{w}}" for c, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)
