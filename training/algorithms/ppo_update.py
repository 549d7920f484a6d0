"""Stable-Baselines3's PPO update for a policy of this project.

Actor and critic are policies of `policies`; the critic's single output is the value. Complete
episodes come from `training.algorithms.exploration`; a rollout buffer holds them one after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.utils import set_random_seed
from torch import Tensor, nn

from policies.common.base_policy import SeeingPolicy
from policies.common.observation import parts_of
from policies.common.recurrent_state import RecurrentState
from training.algorithms.exploration import Rollout, log_probability
from training.algorithms.ppo_config import PPOConfig

_LAST = "\0last_action"
"""The action before, among an observation's parts, none of which is called so."""
_CHUNK = 256
_ADAM_EPSILON = 1e-5  # Stable-Baselines3's


class ActorCritic(ActorCriticPolicy):
    """An actor and a critic of `policies` as a policy of Stable-Baselines3's PPO.

    Observations are a Dict of flat parts, see `_flat`, and actions samples of
    `training.algorithms.exploration`.

    Args:
        actor: the policy that is trained.
        critic: a policy whose single output is the value.
        shapes: shapes of an observation's parts, by name.
        numbers: number of continuous action dimensions.
        exploration: initial standard deviation of their noise.
        temperature: divisor of the logits of choices.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Box,
        lr_schedule: Any,
        *,
        actor: SeeingPolicy,
        critic: SeeingPolicy,
        shapes: Mapping[str, tuple[int, ...]],
        numbers: int,
        exploration: float,
        temperature: float,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr_schedule, net_arch=[], **options)
        self.actor, self.critic, self._shapes = actor, critic, dict(shapes)
        self._temperature = temperature
        self.log_std = nn.Parameter(torch.full((numbers,), math.log(exploration)))
        rate = lr_schedule(1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=rate, eps=_ADAM_EPSILON)

    def _build(self, lr_schedule: Any) -> None:
        """Do nothing: actor and critic are already built."""

    def parts(self, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The observation's parts in their own shapes."""
        return {
            key: observations[key].reshape(-1, *shape).to(self.log_std.device)
            for key, shape in self._shapes.items()
        }

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values (batch, 1), logarithms of probabilities and entropies, each (batch,)."""
        parts = self.parts(obs)
        decision = self.actor.decide(parts, self._memory(obs))
        log_p, entropy = log_probability(decision, self.log_std, actions, self._temperature)
        return self.critic.numbers(parts), log_p, entropy

    def _memory(self, observations: Mapping[str, Tensor]) -> RecurrentState:
        """The actor's recurrent state: the previous action, if it has one."""
        device = self.log_std.device
        first = self.actor.start(len(next(iter(observations.values()))))
        return RecurrentState(
            first.state.to(device), observations.get(_LAST, first.last).to(device)
        )

    def predict_values(self, obs: Any) -> Tensor:
        """Values, (batch, 1)."""
        return self.critic.numbers(self.parts(obs))


class _Spaces(gymnasium.Env[Any, Any]):
    """An environment that only provides the spaces for Stable-Baselines3; it is never stepped."""

    def __init__(self, observation_space: spaces.Dict, width: int) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Box(-1.0, 1.0, (width,), np.float32)


def make_model(
    config: PPOConfig,
    space: gymnasium.Space[Any],
    actor: SeeingPolicy,
    critic: SeeingPolicy,
) -> PPO:
    """Stable-Baselines3's PPO for these; `space` is that of the environment's observations."""
    parts = dict(parts_of(space))
    decision = actor.head(torch.zeros(1, actor.head.size))
    numbers = decision.means().shape[1]
    flat = spaces.Dict({key: _flat(part) for key, part in parts.items()})
    carried = actor.start(1).last.shape[1]
    if carried:
        flat.spaces[_LAST] = spaces.Box(-np.inf, np.inf, (carried,), np.float32)
    env = _Spaces(flat, len(decision.choices()) + numbers)
    model = PPO(
        ActorCritic,
        env,
        learning_rate=config.learning_rate,
        n_steps=config.batch_size,  # size of a buffer that `update` replaces
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef,
        max_grad_norm=config.max_grad_norm,
        target_kl=config.target_kl,
        device=config.device,
        policy_kwargs={
            "actor": actor,
            "critic": critic,
            "shapes": {key: part.shape or () for key, part in parts.items()},
            "numbers": numbers,
            "exploration": config.exploration,
            "temperature": config.temperature,
        },
    )
    model.set_logger(Logger(None, []))
    return model


def _flat(part: gymnasium.Space[Any]) -> spaces.Box:
    """A flattened part of the observation, which Stable-Baselines3 does not treat as an image."""
    dtype = np.dtype(part.dtype or np.int64)
    whole = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (-np.inf, np.inf) if whole is None else (whole.min, whole.max)
    return spaces.Box(low, high, (math.prod(part.shape or ()),), dtype.type)


def discounted(rewards: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Discounted sums of the rewards from each step on."""
    total, found = 0.0, np.empty_like(rewards)
    for i in reversed(range(len(rewards))):
        total = rewards[i] + gamma * total
        found[i] = total
    return found


def update(model: PPO, rollouts: Sequence[Rollout], unit: float, seed: int) -> dict[str, Any]:
    """Train on episodes whose rewards are divided by `unit`; returns Stable-Baselines3's log."""
    set_random_seed(seed)
    model.rollout_buffer = _buffer(model, rollouts, unit)
    model.train()
    return dict(model.logger.name_to_value)


def _buffer(model: PPO, rollouts: Sequence[Rollout], unit: float) -> DictRolloutBuffer:
    """The episodes' steps, one after the other, with advantages."""
    steps = sum(len(rollout.rewards) for rollout in rollouts)
    assert isinstance(model.observation_space, spaces.Dict)
    buffer = DictRolloutBuffer(
        steps, model.observation_space, model.action_space, model.device,
        model.gae_lambda, model.gamma,
    )  # fmt: skip
    begin = 0
    for rollout in rollouts:
        end = begin + len(rollout.rewards)
        rows = slice(begin, end)
        seen = {k: torch.from_numpy(_rows(v)) for k, v in rollout.observations.items()}
        if _LAST in buffer.observations:
            seen[_LAST] = torch.from_numpy(rollout.last)
        actions = torch.from_numpy(rollout.samples)
        values, log_p = _judged(model, seen, actions)
        rewards = rollout.rewards / unit
        if not rollout.terminated:  # truncated: bootstrap with the value
            rewards[-1] += model.gamma * values[-1]
        for key, part in seen.items():
            buffer.observations[key][rows, 0] = part[:-1].numpy()
        buffer.actions[rows, 0], buffer.rewards[rows, 0] = rollout.samples, rewards
        buffer.values[rows, 0], buffer.log_probs[rows, 0] = values[:-1], log_p
        buffer.episode_starts[begin, 0] = 1.0
        begin = end
    buffer.pos, buffer.full = steps, True
    buffer.compute_returns_and_advantage(torch.zeros(1), np.ones(1))
    return buffer


def _rows(part: NDArray[Any]) -> NDArray[Any]:
    return part.reshape(len(part), -1)


@torch.no_grad()
def _judged(
    model: PPO, seen: Mapping[str, Tensor], actions: Tensor
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values of all observations, (steps + 1,), and log-probabilities of the actions."""
    values, logs = [], []
    for begin in range(0, len(actions) + 1, _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        parts = {key: part[rows] for key, part in seen.items()}
        values.append(model.policy.predict_values(parts).flatten())
        tried = actions[rows].to(model.device)
        if len(tried):
            parts = {key: part[: len(tried)] for key, part in parts.items()}
            logs.append(model.policy.evaluate_actions(parts, tried)[1])
    return torch.cat(values).cpu().numpy(), torch.cat(logs).cpu().numpy()
