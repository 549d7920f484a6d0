"""`Trainer`, the description of a trainer for commands and studies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from training.algorithms.job_config import JobConfig, load_job
from training.io.overrides import Overrides, source

__all__ = ["Trainer"]


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A trainer; several of the same name differ in the policies that they accept."""

    name: str
    """The value of `trainer` in a YAML file; "module:NAME" for a custom trainer."""
    config: type[JobConfig]
    """Class of its configurations, whose `trainer` is its name by default."""
    algorithm: Callable[[], type[Any]] | None = None
    """Returns its subclass of `training.runner.Algorithm`; that is imported there, so that --help
    does not wait for PyTorch."""
    learner: str = ""
    """Instead of `algorithm`: a module with a training loop of its own, as `columns(env_id)`,
    `prepare(config, start)`, which returns a `training.runner.Algorithm`, and `train(job, run)`."""
    summary: str = ""
    """What --help says."""
    preset: str = ""
    """File among the package's configs that its command reads when none is given."""
    where: str = ""
    """Which policies it accepts, if other trainers of its name accept others."""
    free_on_resume: tuple[str, ...] = ("iterations", "workers")
    """Keys that a resumed run may change, besides those in `free`."""
    check: Callable[[Any, str], object] | None = None
    """Raises UserError, which names a source, for a configuration that no type forbids."""
    in_processes: bool = False
    """Whether several processes of torchrun may train together."""
    clones_recordings: bool = False
    """Whether it learns from recorded demonstrations alone; its algorithm then has the class method
    `identity(config)`."""
    following: Callable[[Any, Path], list[tuple[str, str]]] | None = None
    """Commands to run next, and their purpose; None: show the curves, train longer."""

    @property
    def command(self) -> str:
        """Module of its command."""
        module = self.name.partition(":")[0]
        return module if ":" in self.name else f"training.{module}"

    @property
    def free(self) -> tuple[str, ...]:
        """All keys that a resumed run may change."""
        return (*self.free_on_resume, "tracker")

    def has(self, key: str) -> bool:
        """Whether its configurations have a key."""
        return key in {part.name for part in fields(self.config)}

    def load(self, path: str | Path, overrides: Overrides = ()) -> Any:
        """Load the configuration with all defaults; raises UserError if it is invalid."""
        config = load_job(self.config, path, overrides)
        if self.check is not None:
            self.check(config, source(path, overrides))
        return config

    @property
    def _source(self) -> Any:
        """The algorithm's class, or the learner's module; imported."""
        return import_module(self.learner) if self.algorithm is None else self.algorithm()

    def columns(self, env_id: str) -> tuple[str, ...]:
        """Columns of metrics.csv."""
        columns: tuple[str, ...] = self._source.columns(env_id)
        return columns

    def prepare(self, config: Any, start: Any = None) -> Any:
        """The algorithm at the beginning of a run, or at the checkpoint `start`; raises UserError
        if it cannot train so.
        """
        source = self._source
        return source.prepare(config, start) if self.algorithm is None else source(config, start)

    def train(self, job: Any, run: Path) -> None:
        """Train the algorithm returned by `prepare` in a run directory."""
        if self.algorithm is None:
            self._source.train(job, run)
            return
        from training.runner import run_loop

        run_loop(job, run)

    def identity(self, config: Any) -> str:
        """A fingerprint of the demonstrations that a run would clone."""
        identity: str = self._source.identity(config)
        return identity
