"""A trainer of one's own, in one file: random search (Rastrigin 1963), the best candidate is kept.

python -m tests.training.random_search --config FILE
"""

from functools import partial

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from training.algorithms import door
from training.algorithms.job_config import STRICT, JobConfig
from training.algorithms.lifecycle import Job
from training.algorithms.trainer import Trainer
from training.algorithms.workers import EpisodeWorker, Task, get_parameters, set_parameters
from training.io import checkpoint
from training.io import config as configuration

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


def columns(env_id):
    return "iteration", "reward_max", "wall_s"


prepare = Job


def train(job, run):
    config, policy = job.config, job.policy
    plain = configuration.dump(config)
    iteration, best = 0, -torch.inf
    if job.start is not None:
        iteration, best = (job.start.state[key] for key in ("progress", "best"))
        iteration = iteration["iteration"]
    make = partial(EpisodeWorker, policy.state_dict(), *job.settings)
    with job.opened(make, run, iteration) as (pool, log):
        while iteration < config.iterations:
            iteration += 1
            draw = torch.Generator().manual_seed(1000 * config.seed + iteration)
            center, statistics = get_parameters(policy), policy.normaliser.statistics
            noise = torch.randn(config.candidates, len(center), generator=draw, dtype=center.dtype)
            tried = [center, *(center + config.sigma * noise)]
            tasks = [Task(one, statistics, config.seed, {}) for one in tried]
            rewards = [outcome.episode.reward for outcome in pool.run(tasks)]
            best = max(rewards)
            set_parameters(policy, tried[rewards.index(best)])
            row = {"iteration": iteration, "reward_max": best, "wall_s": 0.0}
            log.row(row, f"reward {best:.3g}")
            state = {"progress": {"iteration": iteration}, "best": best}
            checkpoint.save_in_run(run, iteration, policy, {}, plain, state)


TRAINER = Trainer(
    name=NAME, config=RandomSearchConfig, learner=__spec__.name, summary="Random search."
)

if __name__ == "__main__":
    raise SystemExit(door.main(NAME))
