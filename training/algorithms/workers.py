"""Workers that run episodes for trainers in this process, in other processes or on a Ray cluster.

An episode's outcome depends on its `Task` alone, and outcomes come back in the order of the tasks,
so that a training run is bit-identical for any kind and number of workers.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import policies
from policies.common.observation import copied
from policies.common.sampling import Sampled
from training.algorithms.credit import Credit, Recorded, discounted
from training.algorithms.feature_maps import evenly
from training.collect.environments import make_env
from training.collect.episode import Episode, Policy, run_episode
from training.collect.seeds import EVALUATION_SEEDS_FROM
from training.io.checkpoint import policy_settings


@dataclass(frozen=True)
class EpisodeTask:
    """One episode."""

    seed: int

    def __str__(self) -> str:
        return f"the episode with seed {self.seed}"


@dataclass(frozen=True)
class Task:
    """One episode of one candidate."""

    parameters: Tensor
    """Searched parameters of the policy, (parameters,) float64."""
    statistics: policies.RunningStatistics
    """Statistics that normalise observations, constant during an iteration."""
    seed: int
    options: dict[str, Any]
    maps: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """Parameters of feature maps fitted since the pool was opened; may be empty."""
    kept: int = 0
    """Number of observations that the outcome holds."""
    sample: bool = False
    """Whether choices are drawn by their logits, with the episode's seed."""
    __str__ = EpisodeTask.__str__


@dataclass(frozen=True)
class Outcome:
    """The outcome of an episode and the statistics of its observations."""

    episode: Episode
    statistics: policies.RunningStatistics
    returns: NDArray[np.float64] | None = None
    """With credit: terms, the discounted sum of each number's terms of the reward, (numbers,)."""
    observations: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)
    """Observations of the episode, at most `Task.kept`, spread evenly over it, by the names of
    their parts."""


def get_parameters(policy: nn.Module) -> Tensor:
    """The searched parameters of a policy as one vector, float64."""
    searched = [p.detach().flatten().double() for p in policy.parameters() if p.requires_grad]
    return torch.cat(searched) if searched else torch.zeros(0, dtype=torch.float64)


def set_parameters(policy: nn.Module, vector: Tensor) -> None:
    """Set the searched parameters of a policy from one vector."""
    searched = [p for p in policy.parameters() if p.requires_grad]
    pieces = vector.split([p.numel() for p in searched])
    with torch.no_grad():
        for parameter, piece in zip(searched, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))


class PolicyWorker:
    """One environment and one policy, for subclasses that run episodes with them.

    Args:
        env_id, env, policy: plain data, as in a run's configuration.
        opened: the environment, if it is already open.
    """

    def __init__(
        self, env_id: str, env: dict[str, Any], policy: dict[str, Any],
        opened: gymnasium.Env | None = None,
    ) -> None:  # fmt: skip
        torch.set_num_threads(1)
        self._env = make_env(env_id, env) if opened is None else opened
        self._policy: Any = policies.compile_act(
            policies.build_for(policy_settings(policy, "policy"), self._env)
        )

    def episode(self, policy: Policy, task: Any, **options: Any) -> Episode:
        """Run a task's episode, without its last `info`. Raises FloatingPointError for NaN from
        policy or reward."""
        assert task.seed < EVALUATION_SEEDS_FROM, f"seed {task.seed} is for evaluation"
        return dataclasses.replace(run_episode(self._env, policy, task.seed, **options), info={})

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Set the policy to a `state_dict` that was sent as arrays."""
        self._policy.load_state_dict({name: torch.from_numpy(v) for name, v in state.items()})

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class EpisodeWorker(PolicyWorker):
    """Runs episodes of candidates.

    Args:
        state: the policy's `state_dict`: random projections and all else that is not searched.
        others: of `PolicyWorker`.
        credit: the numbers of the action that each term of the reward credits; None: candidates are
            judged by the reward.
        gammas: discounts a step, one for each of the head's columns (`Head.judged`).
    """

    def __init__(
        self, state: dict[str, Tensor], *others: Any,
        credit: Credit | None = None, gammas: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(*others)
        self._credit, self._gammas = credit, gammas
        if credit is not None:
            self._env: Any = Recorded(self._env, credit)
        self._policy.load_state_dict(state)
        self._sampled: Sampled | None = None

    def run(self, task: Task) -> Outcome:
        """Run a task's episode. Raises FloatingPointError for NaN from policy or reward."""
        set_parameters(self._policy, task.parameters)
        if task.maps:
            self._policy.load_state_dict(task.maps, strict=False)
        self._policy.normaliser.statistics = task.statistics
        measured: list[np.ndarray] = []
        seen: list[dict[str, np.ndarray]] = []

        def keep(env: Any, observation: Any, action: Any, reward: float, policy: Any) -> None:
            measured.append(self._policy.measured(observation))
            if task.kept:
                seen.append(copied(observation))

        with torch.no_grad():
            episode = self.episode(self._player(task), task, options=task.options, on_step=keep)
        empty = policies.RunningStatistics.empty(len(measured[0]))
        statistics = empty.update(np.stack(measured))
        kept = [seen[i] for i in evenly(len(seen), task.kept)]
        return Outcome(episode, statistics, self._returns(), kept)

    def _returns(self) -> NDArray[np.float64] | None:
        if self._credit is None:
            return None
        rewards = self._env.judged(self._policy.head.judged)
        return discounted(rewards, self._gammas)[0]

    def _player(self, task: Task) -> Policy:
        """The policy itself, or with sampled actions."""
        if not task.sample:
            policy: Policy = self._policy
            return policy
        if self._sampled is None:
            self._sampled = Sampled(self._policy)
        self._sampled.seed(task.seed)
        return self._sampled
