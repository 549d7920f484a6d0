"""A custom trainer in one file: random search (Rastrigin 1963), which keeps the best candidate.

python -m tests.training.random_search --config FILE
"""

from functools import partial

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from training.algorithms import command
from training.algorithms.trainer import STRICT, JobConfig, Trainer
from training.algorithms.workers import EpisodeWorker, Task, get_parameters, set_parameters
from training.runner import Algorithm

NAME = f"{__spec__.name}:TRAINER"


@dataclass(frozen=True, config=STRICT)
class RandomSearchConfig(JobConfig):
    """A training run by random search."""

    trainer: str = NAME
    """Which trainer the file is for."""
    candidates: int = Field(default=3, ge=1)
    """Candidates an iteration."""
    sigma: float = Field(default=0.3, gt=0)
    """Standard deviation of a step, in units of the policy's parameters."""
    init_from: str | None = None
    """Start from this policy."""


class RandomSearch(Algorithm[RandomSearchConfig]):
    """The best of the present policy and its neighbours."""

    @classmethod
    def columns(cls, env_id):
        return "iteration", "reward_max", "wall_s"

    def make_worker(self):
        return partial(EpisodeWorker, self.policy.state_dict(), *self.settings)

    def tasks(self, outcomes):
        if outcomes:
            return []
        config, center = self.config, get_parameters(self.policy)
        draw = torch.Generator().manual_seed(1000 * config.seed + self.progress.iteration)
        noise = torch.randn(config.candidates, len(center), generator=draw, dtype=center.dtype)
        self.tried = [center, *(center + config.sigma * noise)]
        statistics = self.policy.normaliser.statistics
        return [Task(one, statistics, config.seed, {}) for one in self.tried]

    def update(self, outcomes):
        rewards = [outcome.episode.reward for outcome in outcomes]
        best = max(rewards)
        set_parameters(self.policy, self.tried[rewards.index(best)])
        return {"reward_max": best}


TRAINER = Trainer(
    name=NAME,
    config=RandomSearchConfig,
    algorithm=lambda: RandomSearch,
    summary="Random search.",
)

if __name__ == "__main__":
    raise SystemExit(command.main(NAME))
