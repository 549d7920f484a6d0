"""Former path of `training.algorithms.trainer`."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from training.algorithms import trainer

__all__ = ["Trainer"]


@dataclass(frozen=True, kw_only=True)
class Trainer(trainer.Trainer):
    """A trainer with a custom training loop."""

    algorithm: str = ""
    learner: str
    """A module with `columns(env_id)`, `prepare(config, start)`, which returns a `lifecycle.Job`,
    and `train(job, run)`."""

    @property
    def _class(self) -> Any:
        return import_module(self.learner)

    def prepare(self, config: Any, start: Any = None) -> Any:
        return self._class.prepare(config, start)

    def train(self, job: Any, run: Path) -> None:
        self._class.train(job, run)
