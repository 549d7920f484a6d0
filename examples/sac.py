"""Soft actor-critic (Haarnoja et al. 2018): a custom trainer in one file, with a replay buffer.

The update and the buffer are Stable-Baselines3's (extra `rl`); episodes, checkpoints, resuming and
the command are those of every trainer here.

    cd examples && python -m sac --config sac.yaml --out runs/pendulum
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pydantic.dataclasses
import torch
from gymnasium import spaces
from pydantic import Field
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.sac.policies import SACPolicy
from torch import nn

from training.algorithms import command
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.algorithms.trainer import STRICT, JobConfig, Trainer
from training.algorithms.workers import EpisodeTask, PolicyWorker
from training.io.checkpoint import check_tensors
from training.io.config import UserError
from training.io.state_files import Count, State
from training.runner import Algorithm, Progress, Saved

NAME = f"{__spec__.name}:TRAINER"
EPISODES, UPDATE = 0, 1
BUFFER = "observations", "next_observations", "actions", "rewards", "dones", "timeouts"


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SACConfig(JobConfig):
    """A training run by soft actor-critic."""

    trainer: str = NAME
    """Which trainer the file is for."""
    episodes: int = Field(default=2, ge=1)
    """Episodes an iteration."""
    updates: int = Field(default=200, ge=1)
    """Gradient steps an iteration."""
    batch_size: int = Field(default=256, ge=1)
    """Transitions a gradient step."""
    buffer_size: int = Field(default=100_000, ge=1)
    """Number of latest transitions that the replay buffer keeps."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Learning rate of Adam."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount a step."""


class Actor(nn.Module):
    """Stable-Baselines3's actor and critics as a policy: `policy: {name: "sac:Actor"}`."""

    def __init__(self, observation_space, action_space, hidden=(64, 64)):
        super().__init__()
        self.networks = SACPolicy(
            observation_space, action_space, lambda _: 3e-4, net_arch=list(hidden)
        )

    def reset(self):
        pass

    def act(self, observation):
        return self.networks.predict(observation, deterministic=True)[0]


@dataclass(frozen=True)
class Task(EpisodeTask):
    """An episode with exploration."""

    learner: dict[str, np.ndarray]


class Worker(PolicyWorker):
    """Runs episodes; an outcome is a list of transitions as the buffer takes them."""

    def run(self, task):
        self.set_state(task.learner)
        networks, transitions, over = self._policy.networks, [], False
        observation, _ = self._env.reset(seed=task.seed)
        with torch.random.fork_rng():
            torch.manual_seed(task.seed)
            while not over:
                action = networks.predict(observation)[0]
                following, reward, ended, cut_off, _ = self._env.step(action)
                over = ended or cut_off
                transitions.append(
                    (observation, following, networks.scale_action(action), float(reward), over,
                     [{"TimeLimit.truncated": cut_off and not ended}])
                )  # fmt: skip
                observation = following
        return transitions


@pydantic.dataclasses.dataclass
class SACProgress(Progress):
    """Counters of a run."""

    env_steps: Count = 0


@pydantic.dataclasses.dataclass(frozen=True, config=State)
class SACSaved(Saved):
    """The plain data of a checkpoint."""

    progress: SACProgress
    position: Count
    full: bool
    updates: Count


class SoftActorCritic(Algorithm[SACConfig]):
    """Collects with the present policy, learns from everything in the buffer."""

    Progress, Saved = SACProgress, SACSaved

    @classmethod
    def columns(cls, env_id):
        return "iteration", "env_steps", "reward_mean", "critic_loss", "ent_coef", "wall_s"

    def prepare(self):
        config, env = self.config, self.env
        if not (isinstance(self.policy, Actor) and isinstance(env.observation_space, spaces.Box)):
            raise UserError(
                f'{NAME} trains policy.name = "sac:Actor" on vectors, got {config.policy.name} '
                f"on {env.observation_space}"
            )
        self.model = SAC(
            lambda *_, **__: self.policy.networks, env, config.learning_rate, config.buffer_size,
            batch_size=config.batch_size, gamma=config.gamma, device="cpu",
        )  # fmt: skip
        self.model.set_logger(Logger(None, []))
        self.optimisers = {
            "actor/": self.model.actor.optimizer,
            "critic/": self.model.critic.optimizer,
            "entropy/": self.model.ent_coef_optimizer,
        }

    def make_worker(self):
        return partial(Worker, *self.settings)

    def tasks(self, outcomes):
        if outcomes:
            return []
        state = self.policy_arrays()
        return [Task(seed, state) for seed in self.seeds(EPISODES, self.config.episodes)]

    def update(self, outcomes):
        config, progress, model = self.config, self.progress, self.model
        for transition in (one for episode in outcomes for one in episode):
            *arrays, infos = transition
            model.replay_buffer.add(*(np.asarray(array)[None] for array in arrays), infos)
        progress.env_steps += sum(map(len, outcomes))
        set_random_seed(self.seeds(UPDATE, 1)[0])
        model.train(config.updates, config.batch_size)
        found = model.logger.name_to_value
        return {
            "env_steps": progress.env_steps,
            "reward_mean": float(np.mean([sum(one[3] for one in each) for each in outcomes])),
            "critic_loss": float(found["train/critic_loss"]),
            "ent_coef": float(found["train/ent_coef"]),
        }

    def summary(self, row, seconds):
        return f"reward {row['reward_mean']:.3g}"

    def state(self):
        buffer = self.model.replay_buffer
        tensors = {"log_ent_coef": self.model.log_ent_coef}
        for name in BUFFER:
            tensors[f"buffer/{name}"] = torch.from_numpy(getattr(buffer, name)[: buffer.size()])
        for prefix, optimiser in self.optimisers.items():
            states = optimiser_tensors(optimiser)
            tensors |= {prefix + name: tensor for name, tensor in states.items()}
        plain = {"position": buffer.pos, "full": buffer.full, "updates": self.model._n_updates}
        return tensors, plain

    def restore(self, start, saved):
        buffer, found = self.model.replay_buffer, start.search
        size = buffer.buffer_size if saved.full else saved.position
        needed = {f"buffer/{n}": torch.from_numpy(getattr(buffer, n)[:size]) for n in BUFFER}
        needed["log_ent_coef"] = self.model.log_ent_coef
        optimisers = tuple(self.optimisers)
        given = {name: one for name, one in found.items() if not name.startswith(optimisers)}
        check_tensors(start.path, "replay buffer", given, needed)
        for name, tensor in needed.items():
            tensor.data.copy_(found[name])  # in place: it shares the buffer's memory
        buffer.pos, buffer.full, self.model._n_updates = saved.position, saved.full, saved.updates
        for prefix, optimiser in self.optimisers.items():
            set_optimiser(optimiser, start, None, prefix)


TRAINER = Trainer(
    name=NAME,
    config=SACConfig,
    algorithm=lambda: SoftActorCritic,
    summary="Train a policy by soft actor-critic.",
)

if __name__ == "__main__":
    raise SystemExit(command.main(NAME))
