"""Files that a study makes of a finished run: a video, the policy alone, gaze statistics."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import envs
from policies import PolicyConfig
from training.analysis.agents import find_agents
from training.analysis.gaze import axes_ahead, depth_edges, gaze, oracle_views
from training.compare.config import StudyConfig
from training.compare.evaluations import run_is_gone, settings_of, write_json
from training.compare.jobs import DONE, MISSING, Job, Status
from training.compare.runs import TrainingJob, iterations_made
from training.io import checkpoint
from training.io.fingerprint import sha256_of
from training.video.rollout import roll

__all__ = ["GazeJob", "ModelFileJob", "PolicyJob", "VideoJob", "has_gaze"]


@dataclass(frozen=True)
class ModelFileJob(Job):
    """Makes a file from the last policy of a run; a finished run never changes."""

    study: StudyConfig = field(repr=False)
    run: TrainingJob = field(repr=False)
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
        return self.words.format(self.run.directory.name)

    @property
    def requires(self) -> Path:
        return self.run.directory

    def status(self) -> Status:
        """Stale: the run that the file was made from is gone."""
        if not self.path.is_file():
            return MISSING
        directory = self.run.directory
        return DONE if iterations_made(directory) else run_is_gone(self.path, directory)


class VideoJob(ModelFileJob):
    """A video of a variant's policy in the first evaluation scene."""

    folder, suffix, words = "videos", ".mp4", "record a video of {}"

    def execute(self) -> None:
        """Record it. Raises UserError when the environment cannot be rendered after all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        settings = [f"{key}={json.dumps(value)}" for key, value in self.study.env.items()]
        files, env_id = [str(self.run.directory)], self.run.job.env_id
        (agent,) = find_agents(files, [], env_id, settings, self.study.device)
        with contextlib.redirect_stdout(io.StringIO()):  # a study prints its jobs alone
            roll(agent, [self.study.evaluation_seed], self.path)


class PolicyJob(ModelFileJob):
    """A variant's policy as a checkpoint without the search or the optimiser: a smaller file."""

    folder, suffix, words = "policies", ".safetensors", "save the policy of {}"

    def execute(self) -> None:
        """Write it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = checkpoint.load(checkpoint.resolve(self.run.directory))
        checkpoint.save(self.path, whole.policy, {}, whole.config, {})


class GazeJob(ModelFileJob):
    """What the policy of a run keeps, in what the oracle sees."""

    folder, suffix, words = "gaze", ".json", "measure the gaze of {}"
    episodes = 4
    """Terrains that the oracle walks, the first of the evaluation."""

    def execute(self) -> None:
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


def has_gaze(run: TrainingJob) -> bool:
    """Whether a run's policy chooses among tokens of depth images."""
    policy = run.job.policy
    task = envs.find_task(run.job.env_id)
    if not isinstance(policy, PolicyConfig) or task is None or task.edges is None:
        return False
    return policy.selection != "all" and policy.variant != "trans"
