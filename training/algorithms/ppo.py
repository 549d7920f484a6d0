"""Proximal policy optimisation: explore, update with Stable-Baselines3, log.

Actor and critic are policies of `policies`; the critic's single output is the value. Complete
episodes come from `training.algorithms.exploration`; a rollout buffer holds them one after the
other.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

import envs
import policies
from foveate_extras import needs
from policies import RunningStatistics
from policies.common.base_policy import SeeingPolicy
from policies.common.geometry import geometry_of
from policies.common.observation import parts_of
from policies.common.recurrent_state import RecurrentState
from training.algorithms.credit import Credit, declared_credit, discounted
from training.algorithms.exploration import (
    Explorer,
    Rollout,
    Task,
    log_probabilities,
    log_probability,
)
from training.algorithms.feature_maps import OBSERVATIONS, evenly, is_due, sound
from training.algorithms.mirroring import Mirroring
from training.algorithms.ppo_config import PPOConfig, critic_settings
from training.collect.outcomes import episode_columns, episode_values
from training.command.errors import NotFiniteError
from training.io import checkpoint
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.state_files import Count, Finite
from training.runner import Algorithm, Progress, Saved

with needs("training.ppo", "rl"):
    from stable_baselines3 import PPO
    from stable_baselines3.common.buffers import DictRolloutBuffer
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.utils import set_random_seed

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
_SETTINGS = (
    *("learning_rate", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "ent_coef"),
    *("vf_coef", "max_grad_norm", "target_kl", "device"),
)
"""Keys of the configuration that are arguments of Stable-Baselines3's PPO."""
_LAST = "\0last_action"
"""The action before, among an observation's parts, none of which is called so."""
_NUMBER = "\0number"
"""Which column of the samples a row of the buffer is about, among an observation's parts."""
_CHUNK = 256
_ADAM_EPSILON = 1e-5  # Stable-Baselines3's


@dataclass(config=ConfigDict(extra="forbid"))
class PPOProgress(Progress):
    """Counters of a run; with actor, critic and optimiser they are the contents of a checkpoint."""

    env_steps: Count = 0
    episodes: Count = 0
    returns: list[Finite] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Count, means and sums of squared deviations of discounted returns so far."""

    def scale(self, rollouts: Sequence[Rollout], gammas: NDArray[Any]) -> NDArray[np.float64]:
        """Standard deviations of all returns, including those of these episodes: the divisors of
        rewards, (numbers,).
        """
        count, moments = self.returns[0], np.array(self.returns[1:])
        if not count:
            moments = np.zeros(2 * len(gammas))
        total = RunningStatistics(count, *np.split(moments, 2))
        for rollout in rollouts:
            total = total.update(discounted(rollout.rewards, gammas))
        self.returns = [total.count, *total.mean.tolist(), *total.m2.tolist()]
        found: NDArray[np.float64] = np.sqrt(total.m2 / total.count)
        return np.where(found == 0, 1.0, found)


class ProximalPolicyOptimisation(Algorithm[PPOConfig]):
    """Actor, critic, and Stable-Baselines3's PPO around them."""

    Progress, optimiser_prefix = PPOProgress, _OPTIMISER
    progress: PPOProgress

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        return (*episode_columns(envs.find_task(env_id)), *_FIGURES, "exploration", "wall_s")

    def prepare(self) -> None:
        """Critic and PPO; raises UserError if actor or critic cannot be trained."""
        config, env, actor = self.config, self.env, self.policy
        if hasattr(actor.controller, "state_size"):
            raise UserError(
                "policy.controller must not be recurrent in training.ppo, which learns from single "
                f"steps, got {getattr(config.policy, 'controller', None)}; training.es takes it"
            )
        judged = actor.head.judged
        self._credit: Credit | None = None
        if config.credit == "terms":
            self._credit = declared_credit(env, config.env_id, config.gammas)
        value = spaces.Box(-np.inf, np.inf, (len(self._gammas),), np.float32)
        with checkpoint.fitting(f"cannot build the critic for {config.env_id}"):
            self.critic: SeeingPolicy = policies.build(
                critic_settings(self.played, "the configuration"), env.observation_space, value,
                geometry=geometry_of(env), trusted=False,
            )  # fmt: skip
        self.networks = actor, self.critic
        self.model = _make_model(config, env.observation_space, actor, self.critic)
        self.saved_optimiser = self.model.policy.optimizer
        self._mirror: Mirroring | None = None
        if config.mirror:
            choices = actor.head(torch.zeros(1, actor.head.size)).choices()
            self._mirror = Mirroring(env, judged, tuple(one.shape[-1] for one in choices))

    def restore(self, start: Checkpoint, saved: Saved) -> None:
        """Load critic and exploration; raises UserError for another run's state."""
        found = {k: v for k, v in start.search.items() if not k.startswith(_OPTIMISER)}
        checkpoint.check_tensors(start.path, "critic", found, self.state()[0])
        given, needed = len(self.progress.returns), 1 + 2 * len(self._gammas)
        if self.progress.returns[:1] != [0.0] and given != needed:
            raise UserError(
                f"{start.path} is of another run: progress.returns holds {given} numbers, where "
                f"{needed} are needed"
            )
        self.log_std.copy_(found.pop(_LOG_STD))
        self.critic.load_state_dict({k.removeprefix(_CRITIC): v for k, v in found.items()})

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of critic and exploration."""
        critic = {_CRITIC + name: tensor for name, tensor in self.critic.state_dict().items()}
        return {_LOG_STD: self.log_std, **critic}, {}

    @property
    def _gammas(self) -> NDArray[np.float64]:
        """Discounts of what actions are judged by."""
        given, gamma = self.config.gammas, self.config.gamma
        if self._credit is None:
            return np.array([gamma])
        judged = self.policy.head.judged  # not all of the action's numbers, with votes
        return np.array([gamma if given is None else given[number] for number in judged])

    @property
    def log_std(self) -> Tensor:
        """Logarithms of the standard deviations of the noise on an action's numbers."""
        found: Tensor = self.model.policy.log_std.detach()
        return found

    def describe(self) -> str:
        sizes = [sum(p.numel() for p in network.parameters()) for network in self.networks]
        return f"{sizes[0]} parameters, {sizes[1]} of the critic"

    def make_worker(self) -> Any:
        """A worker for episodes with and without exploration."""
        return partial(Explorer, self.config.temperature, *self.settings, credit=self._credit)

    def tasks(self, outcomes: Sequence[Rollout]) -> list[Task]:
        """Episodes without exploration and a wave of `episodes` with it, then further waves until
        they have `steps` steps. No wave ends early, so that no result depends on the workers."""
        config = self.config
        if outcomes and sum(len(rollout.rewards) for rollout in outcomes) >= config.steps:
            return []
        state = self.policy_arrays()
        centers = 0 if outcomes else config.center_episodes
        wave = _FIRST_WAVE + max(0, len(outcomes) - config.center_episodes) // config.episodes
        log_std = self.log_std.cpu().numpy()
        return [
            *(Task(seed, state, None) for seed in self.seeds(_CENTER, centers)),
            *(Task(seed, state, log_std) for seed in self.seeds(wave, config.episodes)),
        ]

    def update(self, outcomes: list[Rollout]) -> dict[str, float]:
        """Update actor and critic; returns the row."""
        config, progress = self.config, self.progress
        tried = outcomes[config.center_episodes :]
        center = [rollout.episode for rollout in outcomes[: config.center_episodes]]
        episodes = [rollout.episode for rollout in tried]
        exploration = float(self.log_std.exp().mean()) if len(self.log_std) else math.nan
        set_random_seed(self.seeds(_UPDATE, 1)[0])
        units = progress.scale(tried, self._gammas)
        mirrored = [] if self._mirror is None else [self._mirror(rollout) for rollout in tried]
        self.model.rollout_buffer = _buffer(self.model, tried + mirrored, units, self._gammas)
        if config.learning_rate_end is not None:
            done = (progress.iteration - 1) / max(config.iterations - 1, 1)
            rate = config.learning_rate + done * (config.learning_rate_end - config.learning_rate)
            self.model.lr_schedule = lambda _: rate
        self.model.train()
        if not all(bool(p.isfinite().all()) for p in self.model.policy.parameters()):
            raise NotFiniteError(
                f"training stopped: the update of iteration {progress.iteration} gives parameters "
                "that are not finite; the last checkpoint is intact (a lower learning_rate may "
                "help)"
            )
        self._take_statistics(tried)
        if is_due(config.fit_after, progress.fitted, progress.iteration):
            self._fit_maps(tried)
        self._steps = sum(episode.steps for episode in center + episodes)
        rewards = [episode.reward for episode in episodes]
        progress.env_steps += self._steps
        progress.episodes += len(outcomes)
        figures = self.model.logger.name_to_value
        return {
            "env_steps": progress.env_steps,
            "episodes": progress.episodes,
            "reward_mean": float(np.mean(rewards)),
            "reward_max": float(np.max(rewards)),
            **episode_values(envs.find_task(config.env_id), center, episodes),
            **{column: float(figures[name]) for column, name in _FIGURES.items()},
            "exploration": exploration,
        }

    def _take_statistics(self, rollouts: Sequence[Rollout]) -> None:
        """Add these observations to the normalisers, from the next iteration on."""
        for rollout in rollouts:
            seen = {k: torch.from_numpy(v) for k, v in rollout.observations.items()}
            seen = {k: part.to(self.model.device) for k, part in seen.items()}
            for network in self.networks:
                total = network.normaliser.statistics.merge(network.statistics_of(seen))
                network.normaliser.statistics = total

    def _fit_maps(self, rollouts: Sequence[Rollout]) -> None:
        """Fit the feature maps of actor and critic to these observations."""
        rows = evenly(sum(len(r.rewards) + 1 for r in rollouts), OBSERVATIONS)
        seen = {
            key: np.concatenate([r.observations[key] for r in rollouts])[rows]
            for key in rollouts[0].observations
        }
        chosen = {key: torch.from_numpy(part).to(self.model.device) for key, part in seen.items()}
        with sound():
            for network in self.networks:
                network.fit_attention(chosen)
        self.progress.fitted = True

    def summary(self, row: dict[str, float], seconds: float) -> str:
        return f"reward {row['center_reward']:.3g}, {self._steps / seconds:.0f} steps/s"


# --- actor and critic as a policy of Stable-Baselines3 ---


class ActorCritic(ActorCriticPolicy):
    """An actor and a critic of `policies` as a policy of Stable-Baselines3's PPO.

    Observations are a Dict of flat parts, see `_flat`, and actions samples of
    `training.algorithms.exploration`.

    Args:
        actor: the policy that is trained.
        critic: a policy whose outputs are the values, one, or one of each judged number.
        shapes: shapes of an observation's parts, by name.
        exploration: initial standard deviations of the noise on continuous numbers, (k,).
        temperature: divisor of the logits of choices.
        whole: whether a batch is from `_WholeDecisions`.
    """

    def __init__(
        self, observation_space: spaces.Dict, action_space: spaces.Box, lr_schedule: Any, *,
        actor: SeeingPolicy, critic: SeeingPolicy, shapes: Mapping[str, tuple[int, ...]],
        exploration: Tensor, temperature: float, whole: bool, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(observation_space, action_space, lr_schedule, net_arch=[], **options)
        self.actor, self.critic, self._shapes = actor, critic, dict(shapes)
        self._temperature, self._whole = temperature, whole
        self.log_std = nn.Parameter(exploration.log().float())
        rate = lr_schedule(1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=rate, eps=_ADAM_EPSILON)

    def _build(self, lr_schedule: Any) -> None:
        """Do nothing: actor and critic are already built."""

    def parts(self, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The observation's parts in their own shapes."""
        return {
            key: observations[key].reshape(len(observations[key]), *shape).to(self.log_std.device)
            for key, shape in self._shapes.items()
        }

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values (batch, 1), logarithms of probabilities and entropies, each (batch,)."""
        apart = _NUMBER in obs
        if self._whole:
            first = obs[_NUMBER][:, 0] == 0
            obs, actions = {key: part[first] for key, part in obs.items()}, actions[first]
        values = self.predict_values(obs)
        log_p, entropy = self.likelihood(obs, actions, apart)
        if not apart:
            return values, log_p, entropy
        if self._whole:
            values, log_p, entropy = (each.T.flatten() for each in (values, log_p, entropy))
            return values.unsqueeze(-1), log_p, entropy
        number = obs[_NUMBER].long().to(values.device)
        values, log_p, entropy = (each.gather(-1, number) for each in (values, log_p, entropy))
        return values, log_p.squeeze(-1), entropy.squeeze(-1)

    def likelihood(self, obs: Any, actions: Tensor, apart: bool) -> tuple[Tensor, Tensor]:
        """Logarithms of probabilities and entropies of all numbers of actions together, (batch,),
        or of each apart, (batch, numbers)."""
        parts, device = self.parts(obs), self.log_std.device
        first = self.actor.start(len(next(iter(obs.values()))))
        memory = RecurrentState(first.state.to(device), obs.get(_LAST, first.last).to(device))
        judge = log_probabilities if apart else log_probability
        decision = self.actor.decide(parts, memory)
        return judge(decision, self.log_std, actions, self._temperature)

    def predict_values(self, obs: Any) -> Tensor:
        """Values, (batch, numbers)."""
        return self.critic.numbers(self.parts(obs))


def _make_model(
    config: PPOConfig, space: gymnasium.Space[Any], actor: SeeingPolicy, critic: SeeingPolicy
) -> PPO:
    """Stable-Baselines3's PPO for these; `space` is that of the environment's observations."""
    parts = dict(parts_of(space))
    decision = actor.head(torch.zeros(1, actor.head.size))
    numbers = decision.means().shape[1]
    flat = spaces.Dict({key: _flat(part) for key, part in parts.items()})
    if config.credit == "terms":
        flat.spaces[_NUMBER] = spaces.Box(0, np.inf, (1,), np.float32)
    if isinstance(config.exploration, tuple) and len(config.exploration) != numbers:
        raise UserError(
            f"exploration must have a deviation for each of the {numbers} regressed numbers of an "
            f"action, got {len(config.exploration)}"
        )
    deviations = np.broadcast_to(np.array(config.exploration, float), numbers)
    carried = actor.start(1).last.shape[1]
    if carried:
        flat.spaces[_LAST] = spaces.Box(-np.inf, np.inf, (carried,), np.float32)
    env: gymnasium.Env = gymnasium.Env()  # provides the spaces alone; it is never stepped
    env.observation_space = flat
    env.action_space = spaces.Box(-1.0, 1.0, (len(decision.choices()) + numbers,), np.float32)
    model = PPO(
        ActorCritic,
        env,
        n_steps=config.batch_size,  # size of a buffer that every update replaces
        policy_kwargs={
            "actor": actor,
            "critic": critic,
            "shapes": {key: part.shape or () for key, part in parts.items()},
            "exploration": torch.tensor(deviations.tolist(), dtype=torch.float64),
            "temperature": config.temperature,
            "whole": config.whole_decisions,
        },
        **{name: getattr(config, name) for name in _SETTINGS},
    )
    model.set_logger(Logger(None, []))
    return model


class _WholeDecisions(DictRolloutBuffer):
    """A buffer whose samples are all numbers of their decisions, one number after the other."""

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        assert batch_size is not None
        next(super().get(1))  # brings its arrays into rows, one number after the other
        order = np.random.permutation(self.buffer_size)  # noqa: NPY002, as the others are drawn
        for begin in range(0, len(order), each := max(1, batch_size // self.n_envs)):
            rows = np.arange(self.n_envs)[:, None] * len(order) + order[begin : begin + each]
            yield self._get_samples(rows.ravel())


def _flat(part: gymnasium.Space[Any]) -> spaces.Box:
    """A flattened part of the observation, which Stable-Baselines3 does not treat as an image."""
    dtype = np.dtype(part.dtype or np.int64)
    whole = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (-np.inf, np.inf) if whole is None else (whole.min, whole.max)
    return spaces.Box(low, high, (math.prod(part.shape or ()),), dtype.type)


def _buffer(
    model: PPO, rollouts: Sequence[Rollout], units: NDArray[np.float64], gammas: NDArray[np.float64]
) -> DictRolloutBuffer:
    """The episodes' steps, one after the other, with advantages; rewards are divided by units.

    Numbers of an action with separate rewards are environments in the buffer's terms."""
    steps, numbers = sum(len(rollout.rewards) for rollout in rollouts), len(units)
    assert isinstance(model.observation_space, spaces.Dict)
    apart = _NUMBER in model.observation_space.spaces
    gamma: Any = gammas.astype(np.float32) if apart else gammas.item()
    kind = _WholeDecisions if model.policy_kwargs["whole"] else DictRolloutBuffer
    buffer = kind(
        steps, model.observation_space, model.action_space, model.device,
        model.gae_lambda, gamma, numbers,
    )  # fmt: skip
    begin = 0
    for rollout in rollouts:
        end = begin + len(rollout.rewards)
        rows = slice(begin, end)
        seen = {k: torch.from_numpy(v.reshape(len(v), -1)) for k, v in rollout.observations.items()}
        if _LAST in buffer.observations:
            seen[_LAST] = torch.from_numpy(rollout.last)
        values, log_p = _judged(model, seen, torch.from_numpy(rollout.samples), apart)
        rewards = rollout.rewards / units
        if not rollout.terminated:  # truncated: bootstrap with the value
            rewards[-1] += gamma * values[-1]
        for key, part in seen.items():
            buffer.observations[key][rows] = part[:-1].numpy()[:, None]
        if apart:
            buffer.observations[_NUMBER][rows] = np.arange(numbers)[:, None]
        buffer.actions[rows], buffer.rewards[rows] = rollout.samples[:, None], rewards
        buffer.values[rows], buffer.log_probs[rows] = values[:-1], log_p
        buffer.episode_starts[begin] = 1.0
        begin = end
    buffer.pos, buffer.full = steps, True
    buffer.compute_returns_and_advantage(torch.zeros(numbers), np.ones(numbers))
    if apart:  # of one size each, as an update brings them all together to variance 1
        found = buffer.advantages
        buffer.advantages = (found - found.mean(0)) / (found.std(0) + 1e-8)
    return buffer


@torch.no_grad()
def _judged(
    model: PPO, seen: Mapping[str, Tensor], actions: Tensor, apart: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values of all observations, (steps + 1, numbers), and log-probabilities of the actions,
    (steps, numbers): of each of its columns apart, or of all together.
    """
    policy: Any = model.policy
    values, logs = [], []
    for begin in range(0, len(actions) + 1, _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        parts = {key: part[rows] for key, part in seen.items()}
        values.append(policy.predict_values(parts))
        tried = actions[rows].to(model.device)
        if len(tried):
            parts = {key: part[: len(tried)] for key, part in parts.items()}
            logs.append(policy.likelihood(parts, tried, apart)[0].view(len(tried), -1))
    return torch.cat(values).cpu().numpy(), torch.cat(logs).cpu().numpy()
