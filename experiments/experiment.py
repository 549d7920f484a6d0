"""An experiment: the matrix of its trials, its directory, and its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.config import ExperimentConfig
from experiments.page import render
from experiments.record import FACTS, TABLE, read_record, table, write_record
from experiments.registry import task
from experiments.results import Results, of_trials, summarise
from experiments.trial import Trial, trials
from training.analysis.agents import check_device
from training.command.errors import command_line
from training.command.files import write_atomically, writing
from training.compare.comparison import PAGE, Comparison, check_owner
from training.compare.jobs import Job, missing_jobs
from training.io import config as configuration
from training.io.config import UserError

__all__ = ["Experiment"]

CONFIG = "experiment.yaml"


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
    """With the settings of --quick."""
    data: str | None = None
    """Folder with the data."""
    noun, config_file = "experiment", CONFIG

    @property
    def parallel(self) -> int:
        return self.settings.parallel

    @cached_property
    def trials(self) -> list[Trial]:
        """All trials."""
        return trials(self.settings, self.out, self.path, self.quick, self.data)

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
        left = {id(job) for job in missing}
        first = {t.variant.name: t for t in reversed(self.trials) if id(t) in left}
        for name, trial in reversed(first.items()):
            try:
                task(self.settings.task).check(trial.settings, self.data)
            except UserError:
                raise
            except ValueError as error:
                raise UserError(f"variant {name}: {error}") from None

    def prepare(self, missing: Sequence[Job]) -> None:
        """Nothing to prepare."""

    def write_page(self, missing: Sequence[str], failed: Sequence[str] = ()) -> bool:
        return self._write(self.out, of_trials(self.settings, self.trials), missing, failed)

    def _write(
        self, place: Path, results: Results, missing: Sequence[str], failed: Sequence[str] = ()
    ) -> bool:
        summary = summarise(self.settings, results)
        page = render(self.settings, summary, self.command(), missing, failed)
        changed = False
        for name, text in ((TABLE, table(summary)), (PAGE, page)):
            path, data = place / name, text.encode()
            if not path.is_file() or path.read_bytes() != data:
                write_atomically(path, data)
                changed = True
        return changed

    def run(self, only: Sequence[str] = (), page_alone: bool = False) -> int:
        """Write the outputs of a comparison; a record's page is written from the record."""
        if not (page_alone and (self.out / FACTS).is_file()):
            return super().run(only, page_alone)
        results = read_record(self.out)
        missing = [
            trial.label for trial in self.trials
            if trial.seed not in results.models.get(trial.variant.name, {})
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
            raise UserError(f"--record keeps what is in {self.out}, and nothing is done there")
        results = of_trials(self.settings, self.trials)
        with writing(record):
            record.mkdir(parents=True, exist_ok=True)
            write_record(record, results, summarise(self.settings, results))
            self._write(record, results, missing)
        print(f"wrote {record}")
