"""What a trainer is: the one object by which commands and studies know it."""

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
    """A trainer, which stands in one file; those of one name differ in the policies they take."""

    name: str
    """The value of `trainer` in a YAML; "module:NAME" of one that is not in the registry."""
    config: type[JobConfig]
    """Class of its configurations, whose `trainer` is its name by default."""
    learner: str
    """Module that trains, imported late: `columns(env_id)` of metrics.csv, `prepare(config, start)`
    that gives a `lifecycle.Job` or raises UserError, and `train(job, run)`."""
    summary: str = ""
    """What --help says."""
    preset: str = ""
    """File among the package's configs that its command reads when none is named."""
    where: str = ""
    """Which policies it takes, where other trainers of its name take others."""
    free_on_resume: tuple[str, ...] = ("iterations", "workers")
    """Keys that a resumed run may change, beside those that any may, see `free`."""
    check: Callable[[Any, str], object] | None = None
    """UserError, which names a source, for a configuration that no type forbids."""
    in_processes: bool = False
    """Whether several processes of torchrun may train together."""
    clones_recordings: bool = False
    """Whether it learns from recorded demonstrations alone; then `learner` has
    `identity(config)` of them."""
    following: Callable[[Any, Path], list[tuple[str, str]]] | None = None
    """Commands to do next with a run, and what for; None: see its curves, train on."""

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
        """The configuration with every default filled in; UserError when something is wrong."""
        config = load_job(self.config, path, overrides)
        if self.check is not None:
            self.check(config, source(path, overrides))
        return config

    @property
    def module(self) -> Any:
        """The learner, imported."""
        return import_module(self.learner)
