"""A comparison: a directory with jobs, its configuration and a page. It resumes when run again."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from training.command.files import lock, write_atomically
from training.command.signals import interrupted_status
from training.compare.jobs import Job, missing_jobs, run_jobs, select
from training.io import config as configuration
from training.io.config import UserError

PAGE = "report.html"


def check_owner(out: Path, config: str, title: str, noun: str, option: str = "--out") -> bool:
    """Whether the directory that an option names holds this comparison already.

    Args:
        out: the directory.
        config: name of the file that holds a comparison's configuration.
        title: of this comparison.
        noun: study, or experiment.
        option: for the error.

    Raises UserError where it holds another comparison, or other files.
    """
    if (out / config).is_file():
        there = configuration.read_yaml(out / config).get("title")
        if there != title:
            raise UserError(
                f"{out} holds another {noun}, {there!r}, not {title!r}: give another {option}"
            )
        return True
    if out.exists() and (not out.is_dir() or any(p.name[0] != "." for p in out.iterdir())):
        raise UserError(f"{out} holds something that is no {noun}: give another {option}")
    return False


class Comparison(ABC):
    """What a study and an experiment have in common; each writes the matrix of jobs."""

    noun: ClassVar[str]
    """Its name in messages."""
    config_file: ClassVar[str]
    """Name of the file that holds its configuration."""
    out: Path
    """Its directory."""

    @property
    @abstractmethod
    def parallel(self) -> int:
        """Jobs that run at the same time."""

    @abstractmethod
    def jobs(self) -> Sequence[Job]:
        """All jobs, in the order in which they start."""

    @abstractmethod
    def config_text(self) -> str:
        """Its configuration, resolved, as YAML."""

    @abstractmethod
    def check(self, missing: Sequence[Job]) -> None:
        """Raise UserError where missing jobs cannot run; nothing is written."""

    @abstractmethod
    def prepare(self, missing: Sequence[Job]) -> None:
        """Prepare the directory, once it is locked."""

    @abstractmethod
    def write_page(self, missing: Sequence[str], failed: Sequence[str] = ()) -> bool:
        """Write the page and the tables from the results, and whether that changed the page.

        Args:
            missing: labels of missing jobs.
            failed: a reason for each of them that failed.
        """

    @abstractmethod
    def command(self, out: Path | None = None, only: Sequence[str] = ()) -> str:
        """The shell command that runs it."""

    def run(self, only: Sequence[str] = (), page_alone: bool = False) -> int:
        """Run the missing jobs, then write the page; the exit status, 2 where jobs failed.

        Args:
            only: words of the jobs to run, see `jobs.select`; empty: all.
            page_alone: write the page from the results that exist.

        Raises:
            UserError: a configuration is wrong, or a result is stale.
        """
        try:
            with self.file_errors():
                return self._run(only, page_alone)
        except KeyboardInterrupt as error:
            command = self.command(self.out, only)
            print(f"\nstopped; finished jobs are kept; resume with: {command}", flush=True)
            return interrupted_status(error)

    @contextmanager
    def file_errors(self) -> Iterator[None]:
        """Where the system refuses to read or write, a UserError that says so."""
        try:
            yield
        except BrokenPipeError:
            raise  # of standard output
        except OSError as error:
            raise UserError(
                f"{self.out}: a file of the {self.noun} cannot be written: {error}"
            ) from None

    def _run(self, only: Sequence[str], page_alone: bool) -> int:
        jobs = self.jobs()
        missing = missing_jobs(jobs)
        selected = select(jobs, only, self.noun)
        chosen = {job.label for job in selected}
        now = [job for job in missing if job.label in chosen]
        later = [job.label for job in missing if job.label not in chosen]
        page = self.out / PAGE
        if page_alone or not now:
            self._make_directory()
            if not (self.out / self.config_file).is_file() or not missing:
                self._write_config()
            written = self.write_page([job.label for job in missing])
            print(f"{'wrote' if written else 'nothing to do; see'} {page}")
            return 0
        self.check(now)
        self._make_directory()
        with lock(self.out):
            self._write_config()
            self.prepare(now)
            failures = run_jobs(
                selected, now, lambda left, why: self.write_page([*left, *later], why),
                self.parallel,
            )  # fmt: skip
        command = self.command(only=only if failures else ())
        if failures:
            print(
                f"{len(failures)} parts failed, {page} lists them; try them again with: {command}"
            )
            return 2
        rest = f"{len(later)} parts are left, {page} lists them; run them with: {command}"
        print(rest if later else f"done: {page}")
        return 0

    def _make_directory(self) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {self.out} cannot be written: {error.strerror}") from None

    def _write_config(self) -> None:
        path, text = self.out / self.config_file, self.config_text().encode()
        if not path.is_file() or path.read_bytes() != text:
            write_atomically(path, text)
