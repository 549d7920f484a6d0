"""Proximal policy optimisation: explore, update with Stable-Baselines3, log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

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
from policies.common.base_policy import SeeingPolicy
from training.algorithms.exploration import Explorer, Rollout, Task
from training.algorithms.feature_maps import OBSERVATIONS, evenly, is_due, sound
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.algorithms.ppo_config import PPOConfig, critic_settings
from training.collect.outcomes import episode_columns, episode_values
from training.command.errors import NotFiniteError
from training.io import checkpoint
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.state_files import Count, Finite, State
from training.runner import Algorithm, Progress, Saved

if TYPE_CHECKING:
    from stable_baselines3 import PPO


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


@checked_dataclass(config=ConfigDict(extra="forbid"))
class PPOProgress(Progress):
    """Counters of a run; with actor, critic and optimiser they are the contents of a checkpoint."""

    env_steps: Count = 0
    episodes: Count = 0
    returns: list[Finite] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Count, mean and sum of squared deviations of discounted returns so far."""

    def scale(self, rollouts: Sequence[Rollout], gamma: float) -> float:
        """Standard deviation of all returns, including those of these episodes: the divisor of
        rewards.
        """
        from training.algorithms.ppo_update import discounted

        count, mean, m2 = self.returns
        total = RunningStatistics(count, np.array([mean]), np.array([m2]))
        for rollout in rollouts:
            total = total.update(discounted(rollout.rewards, gamma)[:, None])
        self.returns = [total.count, float(total.mean[0]), float(total.m2[0])]
        return math.sqrt(self.returns[2] / self.returns[0]) or 1.0


@checked_dataclass(frozen=True, config=State)
class PPOSaved(Saved):
    """The plain data of a checkpoint."""

    progress: PPOProgress
    optimiser_tensors: Count


class ProximalPolicyOptimisation(Algorithm[PPOConfig]):
    """Actor, critic, and Stable-Baselines3's PPO around them."""

    Progress, Saved = PPOProgress, PPOSaved
    progress: PPOProgress

    def __init__(self, config: PPOConfig, start: Checkpoint | None = None) -> None:
        require("training.ppo", "rl")
        super().__init__(config, start)

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        """Of metrics.csv."""
        return (*episode_columns(envs.find_task(env_id)), *_FIGURES, "exploration", "wall_s")

    def prepare(self) -> None:
        """Critic and PPO; raises UserError if actor or critic cannot be trained."""
        from training.algorithms.ppo_update import make_model

        config, env, actor = self.config, self.env, self.policy
        if hasattr(actor.controller, "state_size"):
            raise UserError(
                "policy.controller must remember nothing in training.ppo, which learns from single "
                f"steps, got {getattr(config.policy, 'controller', None)}; training.es takes it"
            )
        value = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        with checkpoint.fitting(f"cannot build the critic for {config.env_id}"):
            self.critic: SeeingPolicy = policies.build(
                critic_settings(config, "the configuration"), env.observation_space, value,
                geometry=getattr(env.unwrapped, "geometry", None), trusted=False,
            )  # fmt: skip
        self.model: PPO = make_model(config, env.observation_space, actor, self.critic)

    def restore(self, start: Checkpoint, saved: PPOSaved) -> None:
        """Load critic, exploration and optimiser; raises UserError for another run's state."""
        known = {_CRITIC + name: tensor for name, tensor in self.critic.state_dict().items()}
        known[_LOG_STD] = self.log_std
        found = {k: v for k, v in start.search.items() if not k.startswith(_OPTIMISER)}
        checkpoint.check_tensors(start.path, "critic", found, known)
        self.log_std.copy_(found.pop(_LOG_STD))
        self.critic.load_state_dict({k.removeprefix(_CRITIC): v for k, v in found.items()})
        set_optimiser(self.model.policy.optimizer, start, saved.optimiser_tensors, _OPTIMISER)

    @property
    def networks(self) -> tuple[SeeingPolicy, SeeingPolicy]:
        """Actor and critic."""
        return self.policy, self.critic

    @property
    def log_std(self) -> Tensor:
        """Standard deviation of the noise on an action's numbers."""
        found = self.model.policy.log_std
        assert isinstance(found, Tensor)
        return found.detach()

    def describe(self) -> str:
        """The numbers of parameters."""
        sizes = [sum(p.numel() for p in network.parameters()) for network in self.networks]
        return f"{sizes[0]} parameters, {sizes[1]} of the critic"

    def make_worker(self) -> Any:
        """A worker for episodes with and without exploration."""
        return partial(Explorer, self.config.temperature, *self.settings)

    def tasks(self, outcomes: Sequence[Rollout]) -> list[Task]:
        """Episodes without exploration and a wave of `episodes` with it, then further waves until
        they have `steps` steps. No wave ends early, so that no result depends on the workers."""
        config = self.config
        if outcomes and sum(len(rollout.rewards) for rollout in outcomes) >= config.steps:
            return []
        state = self.policy_arrays()
        found: list[Task] = []
        if not outcomes:
            seeds = self.seeds(_CENTER, config.center_episodes)
            found = [Task(seed, state, None) for seed in seeds]
        wave = _FIRST_WAVE + max(0, len(outcomes) - config.center_episodes) // config.episodes
        log_std = self.log_std.cpu().numpy()
        return found + [Task(seed, state, log_std) for seed in self.seeds(wave, config.episodes)]

    def update(self, outcomes: list[Rollout]) -> dict[str, float]:
        """Update actor and critic; returns the row."""
        from training.algorithms.ppo_update import update

        config, progress = self.config, self.progress
        tried = outcomes[config.center_episodes :]
        center = [rollout.episode for rollout in outcomes[: config.center_episodes]]
        episodes = [rollout.episode for rollout in tried]
        exploration = float(self.log_std.exp().mean()) if len(self.log_std) else math.nan
        unit = progress.scale(tried, config.gamma)
        figures = update(self.model, tried, unit, self.seeds(_UPDATE, 1)[0])
        self._check_finite()
        self._take_statistics(tried)
        if is_due(config.fit_after, progress.fitted, progress.iteration):
            self._fit_maps(tried)
        self._steps = sum(episode.steps for episode in center + episodes)
        rewards = [episode.reward for episode in episodes]
        progress.env_steps += self._steps
        progress.episodes += len(outcomes)
        return {
            "env_steps": progress.env_steps,
            "episodes": progress.episodes,
            "reward_mean": float(np.mean(rewards)),
            "reward_max": float(np.max(rewards)),
            **episode_values(envs.find_task(config.env_id), center, episodes),
            **{column: float(figures[name]) for column, name in _FIGURES.items()},
            "exploration": exploration,
        }

    def _check_finite(self) -> None:
        if all(bool(p.isfinite().all()) for p in self.model.policy.parameters()):
            return
        raise NotFiniteError(
            f"training stopped: the update of iteration {self.progress.iteration} gives parameters "
            "that are not finite; the last checkpoint is intact (a lower learning_rate may help)"
        )

    def _take_statistics(self, rollouts: Sequence[Rollout]) -> None:
        """Add these observations to the normalisers, from the next iteration on."""
        device = self.log_std.device
        for rollout in rollouts:
            seen = {k: torch.from_numpy(v).to(device) for k, v in rollout.observations.items()}
            for network in self.networks:
                total = network.normaliser.statistics.merge(network.statistics_of(seen))
                network.normaliser.statistics = total

    def _fit_maps(self, rollouts: Sequence[Rollout]) -> None:
        """Fit the feature maps of actor and critic to these observations."""
        seen = {
            key: torch.from_numpy(np.concatenate([r.observations[key] for r in rollouts]))
            for key in rollouts[0].observations
        }
        rows = torch.from_numpy(evenly(len(next(iter(seen.values()))), OBSERVATIONS))
        chosen = {key: part[rows].to(self.log_std.device) for key, part in seen.items()}
        with sound():
            for network in self.networks:
                network.fit_attention(chosen)
        self.progress.fitted = True

    def summary(self, row: dict[str, float], seconds: float) -> str:
        """Reward without exploration, and steps per second."""
        return f"reward {row['center_reward']:.3g}, {self._steps / seconds:.0f} steps/s"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of critic, exploration and optimiser."""
        optimiser = optimiser_tensors(self.model.policy.optimizer)
        tensors = {_LOG_STD: self.log_std}
        tensors |= {_CRITIC + name: tensor for name, tensor in self.critic.state_dict().items()}
        tensors |= {_OPTIMISER + name: tensor for name, tensor in optimiser.items()}
        return tensors, {"optimiser_tensors": len(optimiser)}
