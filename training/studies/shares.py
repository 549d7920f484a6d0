"""What a study makes once of a finished run: a film, the policy alone."""

from __future__ import annotations

import contextlib
import io
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from training.evaluation.players import find_players
from training.films.rollout import roll
from training.runs import checkpoint
from training.studies.config import StudyConfig
from training.studies.evaluations import check_there
from training.studies.runs import Run

__all__ = ["Film", "Product", "Share"]


@dataclass(frozen=True)
class Product(ABC):
    """A file that is made from the last policy of a run; a finished run never changes."""

    study: StudyConfig = field(repr=False)
    run: Run = field(repr=False)
    alone = False
    folder: ClassVar[str]
    """Directory of the study that such files are in."""
    suffix: ClassVar[str]
    """How their names end."""
    words: ClassVar[str]
    """What is printed before one is made, {} for the run."""

    @classmethod
    def path_of(cls, run: Path) -> Path:
        """Where that of a run directory lies."""
        return run.parents[1] / cls.folder / f"{run.name}{cls.suffix}"

    @property
    def path(self) -> Path:
        """The file."""
        return self.path_of(self.run.directory)

    @property
    def label(self) -> str:
        """What is printed before it, and what the page calls it."""
        return self.words.format(self.run.directory.name)

    @property
    def start(self) -> Path:
        """The run that it needs."""
        return self.run.directory

    def done(self) -> bool:
        """Whether it is there."""
        return self.path.is_file()

    def check(self) -> None:
        """UserError when the run that it was made from is gone."""
        if self.done():
            check_there(self.path, self.run.directory)

    @abstractmethod
    def do(self) -> None:
        """Make it."""


class Film(Product):
    """A video of an arm's policy in the first evaluation scene."""

    folder, suffix, words = "videos", ".mp4", "film {}"

    def do(self) -> None:
        """Film it. Raises UserError when the environment cannot be filmed after all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        settings = [f"{key}={json.dumps(value)}" for key, value in self.study.env.items()]
        files, env_id = [str(self.run.directory)], self.run.job.env_id
        (player,) = find_players(files, [], env_id, settings, self.study.device)
        with contextlib.redirect_stdout(io.StringIO()):  # where the page is all that is told
            roll(player, [self.study.evaluation_seed], self.path)


class Share(Product):
    """An arm's policy as a checkpoint without the search or the optimiser: a smaller file."""

    folder, suffix, words = "policies", ".safetensors", "put aside the policy of {}"

    def do(self) -> None:
        """Write it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = checkpoint.load(checkpoint.resolve(self.run.directory))
        checkpoint.save(self.path, whole.policy, {}, whole.config, {})
