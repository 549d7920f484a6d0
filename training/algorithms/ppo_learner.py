"""The training loop of proximal policy optimisation, and what a run goes on from."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from gymnasium import spaces
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass
from torch import Tensor

import envs
import policies
from foveate_extras import require
from policies import RunningStatistics
from policies.common.seeing import SeeingPolicy
from training.algorithms import lifecycle
from training.algorithms.exploration import Explorer, Rollout, Task
from training.algorithms.lifecycle import state_of
from training.algorithms.map_fitting import OBSERVATIONS, announce, evenly, is_due, sound
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.algorithms.ppo_config import PPOConfig, critic_settings
from training.algorithms.workers import explained
from training.collect.crew import Pool
from training.collect.outcomes import episode_columns, episode_values
from training.collect.seeds import derived_seeds
from training.command.errors import NotFiniteError
from training.io import checkpoint, run_log
from training.io import config as configuration
from training.io.config import UserError
from training.io.state_files import Count, Finite, State

if TYPE_CHECKING:
    from stable_baselines3 import PPO

__all__ = ["columns", "prepare", "train"]

_UPDATE, _CENTER, _FIRST_WAVE = 0, 1, 2
_CRITIC, _OPTIMISER, _LOG_STD = "critic/", "optimiser/", "log_std"
_FIGURES = {
    "policy_loss": "train/policy_gradient_loss",
    "value_loss": "train/value_loss",
    "entropy_loss": "train/entropy_loss",
    "approx_kl": "train/approx_kl",
    "clip_fraction": "train/clip_fraction",
    "explained_variance": "train/explained_variance",
}
"""Columns of metrics.csv, and what Stable-Baselines3 calls them."""


def columns(env_id: str) -> tuple[str, ...]:
    """Of metrics.csv."""
    return (*episode_columns(envs.find_task(env_id)), *_FIGURES, "exploration", "wall_s")


@checked_dataclass(config=ConfigDict(extra="forbid"))
class Progress:
    """Counters of a run; with actor, critic and optimiser, all that a checkpoint holds."""

    iteration: Count = 0
    env_steps: Count = 0
    episodes: Count = 0
    fitted: bool = False
    """Whether the policies' feature maps are fitted to their queries and keys."""
    returns: list[Finite] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Count, mean and sum of squared deviations of discounted returns so far."""

    def scale(self, rollouts: Sequence[Rollout], gamma: float) -> float:
        """Their standard deviation, these episodes' returns included: what rewards are divided
        by."""
        from training.algorithms.ppo_update import discounted

        count, mean, m2 = self.returns
        total = RunningStatistics(count, np.array([mean]), np.array([m2]))
        for rollout in rollouts:
            total = total.update(discounted(rollout.rewards, gamma)[:, None])
        self.returns = [total.count, float(total.mean[0]), float(total.m2[0])]
        return math.sqrt(self.returns[2] / self.returns[0]) or 1.0


@checked_dataclass(frozen=True, config=State)
class _Saved:
    """What a run goes on from, beside tensors."""

    progress: Progress
    optimiser_tensors: Count


class Job(lifecycle.Job[PPOConfig]):
    """What a run begins with: actor, critic, and Stable-Baselines3's PPO around them."""

    def __init__(self, config: PPOConfig, start: checkpoint.Checkpoint | None = None) -> None:
        require("training.ppo", "rl")
        super().__init__(config, start)

    def prepare(self) -> None:
        """Critic and PPO; UserError where actor or critic cannot be trained."""
        from training.algorithms.ppo_update import make_model

        config, env = self.config, self.env
        if hasattr(self.actor.controller, "state_size"):
            raise UserError(
                "policy.controller must remember nothing in training.ppo, which learns from single "
                f"steps, got {getattr(config.policy, 'controller', None)}; training.es takes it"
            )
        value = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        with checkpoint.fitting(f"cannot build the critic for {config.env_id}"):
            self.critic: SeeingPolicy = policies.build(
                critic_settings(config, "the configuration"), env.observation_space, value,
                geometry=getattr(env.unwrapped, "geometry", None), typed=False,
            )  # fmt: skip
        self.model: PPO = make_model(config, env.observation_space, self.actor, self.critic)

    @property
    def actor(self) -> SeeingPolicy:
        """The policy."""
        found: SeeingPolicy = self.policy
        return found

    @property
    def networks(self) -> tuple[SeeingPolicy, SeeingPolicy]:
        """Actor and critic."""
        return self.actor, self.critic

    @property
    def log_std(self) -> Tensor:
        """Of the noise on an action's numbers."""
        found = self.model.policy.log_std
        assert isinstance(found, Tensor)
        return found.detach()


prepare = Job


def save(run: Path, learner: Job, progress: Progress) -> None:
    """Write the iteration's checkpoint: the policy, and what else training goes on from."""
    optimiser = optimiser_tensors(learner.model.policy.optimizer)
    critic = learner.critic.state_dict()
    tensors = {_LOG_STD: learner.log_std}
    tensors |= {_CRITIC + name: tensor for name, tensor in critic.items()}
    tensors |= {_OPTIMISER + name: tensor for name, tensor in optimiser.items()}
    state = {"progress": dataclasses.asdict(progress), "optimiser_tensors": len(optimiser)}
    plain = configuration.dump(learner.config)
    checkpoint.save_in_run(run, progress.iteration, learner.actor, tensors, plain, state)


def load(start: checkpoint.Checkpoint, learner: Job) -> Progress:
    """Set a learner to what else a checkpoint holds; UserError when that is another's."""
    saved = state_of(start, _Saved)
    known = {_CRITIC + name: tensor for name, tensor in learner.critic.state_dict().items()}
    known[_LOG_STD] = learner.log_std
    found = {k: v for k, v in start.search.items() if not k.startswith(_OPTIMISER)}
    checkpoint.check_tensors(start.path, "critic", found, known)
    learner.log_std.copy_(found.pop(_LOG_STD))
    learner.critic.load_state_dict({k.removeprefix(_CRITIC): v for k, v in found.items()})
    set_optimiser(learner.model.policy.optimizer, start, saved.optimiser_tensors, _OPTIMISER)
    return saved.progress


def train(job: Job, run: Path) -> None:
    """Train in the run directory `run`."""
    config = job.config
    if job.start is None:
        progress = Progress(fitted=job.fitted)
        save(run, job, progress)
    else:
        progress = load(job.start, job)
    sizes = [sum(p.numel() for p in network.parameters()) for network in job.networks]
    print(f"{sizes[0]} parameters, {sizes[1]} of the critic, in {run}", flush=True)
    if progress.iteration >= config.iterations:
        return
    announce(job.actor, config.fit_after, progress.fitted, config.iterations)
    make = partial(Explorer, config.temperature, *job.settings)
    with job.opened(make, run, progress.iteration) as (pool, log):
        torch.set_num_threads(config.threads)
        learn(run, job, progress, pool, log)


def explore(
    iteration: int, learner: Job, pool: Pool[Task, Rollout]
) -> tuple[list[Rollout], list[Rollout]]:
    """An iteration's episodes without exploration, and those with it: waves of `episodes`, until
    they have `steps` steps. That no result depends on the workers, no wave ends early."""
    config = learner.config
    state = {name: tensor.numpy(force=True) for name, tensor in learner.actor.state_dict().items()}
    log_std = learner.log_std.cpu().numpy()
    seeds = derived_seeds(config.seed, iteration, _CENTER, config.center_episodes)
    tasks = [Task(seed, state, None) for seed in seeds]
    found: list[Rollout] = []
    wave = _FIRST_WAVE
    while sum(len(rollout.rewards) for rollout in found) < config.steps:
        seeds = derived_seeds(config.seed, iteration, wave, config.episodes)
        tasks += [Task(seed, state, log_std) for seed in seeds]
        with explained():
            found += pool.run(tasks)
        tasks, wave = [], wave + 1
    return found[: config.center_episodes], found[config.center_episodes :]


def learn(
    run: Path, learner: Job, progress: Progress, pool: Pool[Task, Rollout], log: run_log.RunLog
) -> None:
    """The training loop: explore, update, log, save."""
    from training.algorithms.ppo_update import update

    config = learner.config
    task, earlier_s = envs.find_task(config.env_id), float(log.last.get("wall_s", 0.0))
    began = time.perf_counter()
    while progress.iteration < config.iterations:
        lap = time.perf_counter()
        progress.iteration += 1

        calm, tried = explore(progress.iteration, learner, pool)
        center, episodes = ([rollout.episode for rollout in part] for part in (calm, tried))
        exploration = float(learner.log_std.exp().mean()) if len(learner.log_std) else math.nan

        unit = progress.scale(tried, config.gamma)
        seed = derived_seeds(config.seed, progress.iteration, _UPDATE, 1)[0]
        figures = update(learner.model, tried, unit, seed)
        check_finite(learner, progress.iteration)
        take_statistics(learner, tried)
        fit_maps(learner, progress, tried)

        steps = sum(episode.steps for episode in center + episodes)
        rewards = [episode.reward for episode in episodes]
        progress.env_steps += steps
        progress.episodes += len(center) + len(episodes)
        now = time.perf_counter()
        row = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "episodes": progress.episodes,
            "reward_mean": float(np.mean(rewards)),
            "reward_max": float(np.max(rewards)),
            **episode_values(task, center, episodes),
            **{column: float(figures[name]) for column, name in _FIGURES.items()},
            "exploration": exploration,
            "wall_s": round(earlier_s + now - began, 3),
        }
        log.row(row, f"reward {row['center_reward']:.3g}, {steps / (now - lap):.0f} steps/s")
        save(run, learner, progress)


def check_finite(learner: Job, iteration: int) -> None:
    """NotFiniteError when an update has left numbers that are not finite."""
    if all(bool(p.isfinite().all()) for p in learner.model.policy.parameters()):
        return
    raise NotFiniteError(
        f"training stopped: the update of iteration {iteration} gives parameters that are not "
        "finite; the last checkpoint is intact (a lower learning_rate may help)"
    )


def seen_in(rollouts: Sequence[Rollout]) -> dict[str, Tensor]:
    """All observations, each part (N, ...)."""
    keys = rollouts[0].observations
    return {
        k: torch.from_numpy(np.concatenate([r.observations[k] for r in rollouts])) for k in keys
    }


def take_statistics(learner: Job, rollouts: Sequence[Rollout]) -> None:
    """Add what was seen to what observations are normalised by, from the next iteration on."""
    device = learner.log_std.device
    for rollout in rollouts:
        seen = {key: part.to(device) for key, part in seen_in([rollout]).items()}
        for network in learner.networks:
            total = network.normaliser.statistics.merge(network.statistics_of(seen))
            network.normaliser.statistics = total


def fit_maps(learner: Job, progress: Progress, rollouts: Sequence[Rollout]) -> None:
    """Fit the feature maps, when that is due, to what was seen."""
    if not is_due(learner.config.fit_after, progress.fitted, progress.iteration):
        return
    seen = seen_in(rollouts)
    rows = torch.from_numpy(evenly(len(next(iter(seen.values()))), OBSERVATIONS))
    chosen = {key: part[rows].to(learner.log_std.device) for key, part in seen.items()}
    with sound():
        for network in learner.networks:
            network.fit_attention(chosen)
    progress.fitted = True
