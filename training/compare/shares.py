"""What a study makes once of a finished run: a film, the policy alone, where it looks."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import envs
from policies import PolicyConfig
from training.analysis.agents import find_agents
from training.analysis.gaze import axes_ahead, depth_edges, gaze, oracle_views
from training.compare.config import StudyConfig
from training.compare.evaluations import (
    check_there,
    settings_of,
    write_json,
)
from training.compare.runs import Run
from training.io import checkpoint
from training.io.fingerprint import sha256_of
from training.video.rollout import roll

__all__ = ["Film", "Look", "Product", "Share", "has_gaze"]


@dataclass(frozen=True)
class Product(ABC):
    """A file that is made from the last policy of a run; a finished run never changes."""

    study: StudyConfig = field(repr=False)
    run: Run = field(repr=False)
    trained = None
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
        (agent,) = find_agents(files, [], env_id, settings, self.study.device)
        with contextlib.redirect_stdout(io.StringIO()):  # where the page is all that is told
            roll(agent, [self.study.evaluation_seed], self.path)


class Share(Product):
    """An arm's policy as a checkpoint without the search or the optimiser: a smaller file."""

    folder, suffix, words = "policies", ".safetensors", "put aside the policy of {}"

    def do(self) -> None:
        """Write it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = checkpoint.load(checkpoint.resolve(self.run.directory))
        checkpoint.save(self.path, whole.policy, {}, whole.config, {})


class Look(Product):
    """What the policy of a run keeps, in what the oracle sees."""

    folder, suffix, words = "gaze", ".json", "measure where {} looks"
    episodes = 4
    """Terrains that the oracle walks, the first of the evaluation."""

    def do(self) -> None:
        """Measure it."""
        settings = settings_of(self.run.job.env_id, self.run.job.env, self.study.env)
        first = self.study.evaluation_seed
        env_id = self.run.job.env_id
        views = oracle_views(settings, range(first, first + self.episodes), env_id)
        policy, _ = checkpoint.load_policy(self.run.directory)
        past_m, ahead = depth_edges(env_id).past_m, axes_ahead(settings, env_id)
        found = dataclasses.asdict(gaze(policy, views, past_m, ahead))
        sha256 = sha256_of(checkpoint.resolve(self.run.directory))
        write_json(self.path, {**found, "checkpoint_sha256": sha256, "views": len(views)})


def has_gaze(run: Run) -> bool:
    """Whether a run's policy chooses among tokens of depth images."""
    policy = run.job.policy
    task = envs.find_task(run.job.env_id)
    if not isinstance(policy, PolicyConfig) or task is None or task.edges is None:
        return False
    return policy.selection != "all" and policy.variant != "trans"
