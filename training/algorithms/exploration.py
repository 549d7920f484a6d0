"""Episodes with exploration: observations, samples and rewards for policy gradients.

Categorical choices are sampled by their logits, and numbers have independent Gaussian noise. A
sample is a row of choices, then numbers, before any bound.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.common.heads import Decision
from policies.common.observation import copied
from policies.common.sampling import draw, take
from training.algorithms.credit import Credit, Recorded
from training.algorithms.workers import EpisodeTask, PolicyWorker
from training.collect.episode import Episode

_LOG_TWO_PI = float(np.log(2 * np.pi))


def log_probability(
    decision: Decision, log_std: Tensor, samples: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Logarithms of the probabilities (densities of numbers) of samples that `draw` would give,
    and the entropies, each (batch,)."""
    (of_numbers, spread), of_choices = _each(decision, log_std, samples, temperature)
    log_p, entropy = of_numbers.sum(-1), spread.sum().expand(len(of_numbers))
    for chosen, own in of_choices:
        log_p, entropy = log_p + chosen, entropy + own
    return log_p, entropy


def log_probabilities(
    decision: Decision, log_std: Tensor, samples: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """As `log_probability`, but of each column of the samples, (batch, choices + numbers)."""
    (of_numbers, spread), of_choices = _each(decision, log_std, samples, temperature)
    log_p = [one.unsqueeze(-1) for one, _ in of_choices]
    entropy = [one.unsqueeze(-1) for _, one in of_choices]
    return (
        torch.cat([*log_p, of_numbers], -1),
        torch.cat([*entropy, spread.expand_as(of_numbers)], -1),
    )


def _each(
    decision: Decision, log_std: Tensor, samples: Tensor, temperature: float
) -> tuple[tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """Log-densities (batch, k) and entropies (k,) of numbers, and those (batch,) of each choice."""
    means, logits = decision.means(), decision.choices()
    error = (samples[:, len(logits) :] - means) / log_std.exp()
    log_p = -0.5 * error.square() - log_std - 0.5 * _LOG_TWO_PI
    choices = []
    for chosen, each in zip(samples.T, logits, strict=False):
        shares = (each / temperature).log_softmax(-1)
        of_chosen = shares.gather(-1, chosen.long().unsqueeze(-1)).squeeze(-1)
        choices.append((of_chosen, -(shares.exp() * shares).sum(-1)))
    return (log_p, 0.5 + 0.5 * _LOG_TWO_PI + log_std), choices


@dataclass(frozen=True)
class Task(EpisodeTask):
    """One episode of the policy."""

    learner: dict[str, NDArray[Any]]
    """The policy's `state_dict`."""
    log_std: NDArray[np.float32] | None
    """Log standard deviation of the action noise; None: no exploration, and no recorded steps."""


@dataclass(frozen=True)
class Rollout:
    """An episode, and its steps; no steps without exploration."""

    episode: Episode
    observations: dict[str, NDArray[Any]]
    """Parts of the observation before each step, and after the last, (steps + 1, ...)."""
    last: NDArray[np.float32]
    """The action before each of these, as the head codes it, for a policy with `last_action`;
    (steps + 1, coded or 0), zeros in the beginning."""
    samples: NDArray[np.float32]
    """The samples, (steps, choices + numbers)."""
    rewards: NDArray[np.float64]
    """(steps, 1), or (steps, choices + numbers) where each has separate reward terms."""
    terminated: bool
    """Whether the episode terminated; otherwise it was truncated."""


class _Trying:
    """A policy that explores and records all observations and samples."""

    def __init__(self, policy: Any, log_std: Tensor, seed: int, temperature: float) -> None:
        self.seen: list[dict[str, NDArray[Any]]] = []
        self.last: list[NDArray[np.float32]] = []
        self.samples: list[NDArray[np.float32]] = []
        self._policy, self._log_std, self._temperature = policy, log_std, temperature
        self._generator = torch.Generator().manual_seed(seed)

    def reset(self) -> None:
        self._policy.reset()
        self.last = [self._policy.start(1).last[0].numpy()]

    @torch.inference_mode()
    def act(self, observation: Any) -> Any:
        self.see(observation)
        decision, head = self._policy.decide_one(observation), self._policy.head
        sample = draw(decision, self._log_std, self._generator, self._temperature)
        self.samples.append(sample[0].numpy())
        action, taken = take(self._policy, sample, len(decision.choices()))
        coded = self._policy.config.last_action
        self.last.append(head.code(taken)[0].float().numpy() if coded else self.last[0])
        return action

    def see(self, observation: Any) -> None:
        self.seen.append(copied(observation))


class Explorer(PolicyWorker):
    """Runs episodes with and without exploration.

    Args:
        temperature: divisor of the logits of choices.
        others: of `PolicyWorker`.
        credit: the numbers of the action that each term of the reward credits; None: all of them
            are judged by the reward.
    """

    def __init__(self, temperature: float, *others: Any, credit: Credit | None = None) -> None:
        super().__init__(*others)
        self._env: Any = Recorded(self._env, credit)
        self._temperature, self._credit = temperature, credit

    def run(self, task: Task) -> Rollout:
        """Run a task's episode. Raises FloatingPointError for NaN from policy or reward."""
        self.set_state(task.learner)
        if task.log_std is None:
            episode, no_rows = self.episode(self._policy, task), np.zeros((0, 0), np.float32)
            return Rollout(episode, {}, no_rows, no_rows, np.zeros((0, 1)), False)
        log_std = torch.from_numpy(task.log_std)
        trying = _Trying(self._policy, log_std, task.seed, self._temperature)
        episode = self.episode(trying, task)
        trying.see(self._env.observation)
        parts = {key: np.stack([seen[key] for seen in trying.seen]) for key in trying.seen[0]}
        last, samples = np.stack(trying.last), np.stack(trying.samples)
        rewards = np.array(self._env.rewards)[:, None]
        if self._credit is not None:
            rewards = self._env.judged(self._policy.head.judged)
        return Rollout(episode, parts, last, samples, rewards, self._env.terminated)
