"""What a study makes once of a finished run: a film, the policy alone."""

from __future__ import annotations

import contextlib
import io
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from training import checkpoint, rollout
from training.study_config import StudyConfig
from training.study_measures import check_there
from training.study_runs import Run, StoppedError

__all__ = ["Film", "Product", "Share", "film_path", "shared_path"]


@dataclass(frozen=True)
class Product(ABC):
    """A file that is made from the last policy of a run; a finished run never changes."""

    study: StudyConfig = field(repr=False)
    run: Run = field(repr=False)
    alone = False

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file."""

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


def film_path(run: Path) -> Path:
    """Where the video of a run's policy lies."""
    return run.parents[1] / "videos" / f"{run.name}.mp4"


class Film(Product):
    """A video of an arm's policy in the first evaluation scene."""

    @property
    def path(self) -> Path:
        """The video."""
        return film_path(self.run.directory)

    @property
    def label(self) -> str:
        """What is printed before it."""
        return f"film {self.run.directory.name}"

    def do(self) -> None:
        """Film it. Raises StoppedError when the environment cannot be filmed after all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        settings = [f"{key}={json.dumps(value)}" for key, value in self.study.env.items()]
        arguments = [str(self.run.directory), "--video", str(self.path), "--seed",
                     str(self.study.evaluation_seed), "--device", self.study.device]  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            status = rollout.main([*arguments, *(["--set", *settings] if settings else [])])
        if status != 0:
            raise StoppedError(status)


def shared_path(run: Path) -> Path:
    """Where the policy of a run lies, alone."""
    return run.parents[1] / "policies" / f"{run.name}.safetensors"


class Share(Product):
    """An arm's policy as a checkpoint without the search or the optimiser: a smaller file."""

    @property
    def path(self) -> Path:
        """The file."""
        return shared_path(self.run.directory)

    @property
    def label(self) -> str:
        """What is printed before it."""
        return f"put aside the policy of {self.run.directory.name}"

    def do(self) -> None:
        """Write it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = checkpoint.load(checkpoint.resolve(self.run.directory))
        checkpoint.save(self.path, whole.policy, {}, whole.config, {})
