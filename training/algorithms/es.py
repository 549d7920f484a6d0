"""Evolution strategies: ask a searcher for candidates, run their episodes, report the returns."""

import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

import envs
from policies.common.base_policy import SeeingPolicy
from policies.common.feature_maps import map_state
from policies.common.heads import ChoiceHead
from policies.common.sampling import Sampled
from training.algorithms import searchers
from training.algorithms.credit import Credit, declared_credit
from training.algorithms.es_config import MOST_FOR_FULL_COVARIANCE, AutoConfig, ESConfig
from training.algorithms.feature_maps import OBSERVATIONS, evenly, is_due, sound
from training.algorithms.workers import (
    EpisodeWorker,
    Outcome,
    Task,
    get_parameters,
    set_parameters,
)  # fmt: skip
from training.collect import environments
from training.collect.outcomes import episode_columns, episode_values
from training.io.checkpoint import Checkpoint, check_tensors
from training.io.config import UserError
from training.io.state_files import Count, Finite, State
from training.runner import Algorithm, Progress, Saved

_MOST_POPULATION = 5 * 10**7


@dataclass(config=ConfigDict(extra="forbid"))
class ESProgress(Progress):
    """Counters of a run; with the policy and the searcher they are the contents of a checkpoint."""

    env_steps: Count = 0
    episodes: Count = 0
    level: Count = 0
    recent_success: list[Finite] = field(default_factory=list)
    """Population's success rates at this level, the last `advance_window` of them."""

    def advance(self, config: ESConfig, success_rate: float) -> None:
        """Advance to the next level of the curriculum when this one is mastered."""
        self.recent_success = [*self.recent_success, success_rate][-config.advance_window :]
        mastered = (
            len(self.recent_success) == config.advance_window
            and float(np.mean(self.recent_success)) >= config.advance_at
        )
        if mastered and self.level + 1 < len(config.curriculum):
            self.level += 1
            self.recent_success = []


@dataclass(frozen=True, config=State)
class ESSaved(Saved):
    """The plain data of a checkpoint."""

    search: dict[str, Finite]


def parameter_columns(policy: nn.Module) -> Tensor:
    """The return that judges each searched parameter, (parameters,): the column of the policy's
    samples (choices, then numbers) that a row of the controller's last layer belongs to, or, for
    all other parameters, the number of columns.

    Raises:
        UserError: for a controller without such a layer.
    """
    controller: Any = getattr(policy, "controller", policy)  # a custom policy has none
    output, widths = getattr(controller, "output", None), []
    if isinstance(policy, SeeingPolicy):
        decision = policy.head(torch.zeros(1, policy.head.size))
        widths = [one.shape[-1] for one in decision.choices()] + [1] * decision.means().shape[-1]
    if not isinstance(output, nn.Linear) or output.out_features != sum(widths):
        raise UserError(
            "credit must be shared with a controller whose last layer is not that of the action's "
            f"numbers, got terms with {type(controller).__name__}"
        )
    columns = torch.repeat_interleave(torch.arange(len(widths)), torch.tensor(widths))
    found = []
    for parameter in policy.parameters():
        if parameter is output.weight:
            found.append(columns.repeat_interleave(parameter.shape[1]))
        elif parameter is output.bias:
            found.append(columns)
        elif parameter.requires_grad:
            found.append(torch.full((parameter.numel(),), len(widths)))
    return torch.cat(found)


_SEARCH, _CENTER, _POPULATION, _FIRST_PAIR = 0, 1, 2, 3


class EvolutionStrategies(Algorithm[ESConfig]):
    """Optimises the policy's parameters by the returns of whole episodes."""

    Progress, Saved = ESProgress, ESSaved
    progress: ESProgress

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        return (*episode_columns(envs.find_task(env_id)), "level", "sigma", "wall_s")

    def prepare(self) -> None:
        """Build the searcher around the policy's parameters."""
        config, parameters = self.config, get_parameters(self.policy)
        self._step_s, self._steps = environments.step_s(self.env), 0
        numbers = config.popsize * len(parameters)
        if numbers > _MOST_POPULATION:
            raise UserError(
                f"popsize = {config.popsize} candidates of the policy's {len(parameters)} "
                f"parameters are {numbers} numbers, but the limit is {_MOST_POPULATION}"
            )
        self._credit: Credit | None = None
        groups = None
        if config.credit == "terms":
            self._credit = declared_credit(self.env, config.env_id, config.gammas)
            groups = parameter_columns(self.policy)
        self._most = len(parameters) if groups is None else int(groups.bincount().max())
        try:
            chosen = config.searcher
            if isinstance(chosen, AutoConfig):
                chosen = chosen.choice(self._most, config.sample_actions)
            self.searcher = searchers.build(chosen, parameters, config.popsize, groups)
        except ValueError as error:
            raise UserError(str(error)) from None
        if config.sample_actions:
            try:
                Sampled(self.policy)
            except ValueError as error:
                raise UserError(
                    f"sample_actions must be false for {config.env_id}: {error}"
                ) from None

    def restore(self, start: Checkpoint, saved: ESSaved) -> None:
        """Set the searcher to its state; raises UserError for another searcher's."""
        tensors, numbers = self.searcher.state()
        check_tensors(start.path, "searcher", start.search, tensors)
        if saved.search.keys() != numbers.keys():
            raise UserError(
                f"{start.path} is of another searcher: search holds the numbers "
                f"{', '.join(saved.search) or 'none'}, where {', '.join(numbers) or 'none'} are "
                "needed"
            )
        if self.progress.level >= max(1, len(self.config.curriculum)):
            raise UserError(
                f"{start.path} is at level {self.progress.level}, which the curriculum does not "
                "have"
            )
        self.searcher.load_state(start.search, saved.search)

    def describe(self) -> str:
        count, config = len(self.searcher.center), self.config.searcher
        if not isinstance(config, AutoConfig):
            return f"{count} parameters, {config.name}"
        chosen = config.choice(self._most, self.config.sample_actions)
        kind = "a diagonal" if chosen.separable else "a full"
        return (
            f"{count} parameters, cmaes with {kind} covariance, sigma {chosen.sigma} "
            f"(searcher.name = auto: full up to {MOST_FOR_FULL_COVARIANCE} parameters)"
        )

    def choices(self) -> list[str]:
        """The policy's parts and whether actions are drawn, then workers and device."""
        policy, *others = super().choices()
        if isinstance(getattr(self.policy, "head", None), ChoiceHead):
            policy += (
                ", drawn by their probabilities"
                if self.config.sample_actions
                else ", the best taken (sample_actions=true draws them, for sparse rewards)"
            )
        return [policy, *others]

    def make_worker(self) -> Any:
        gammas = None
        if self._credit is not None:
            judged, given = self.policy.head.judged, self.config.gammas
            gammas = np.ones(len(judged)) if given is None else np.array(given)[list(judged)]
        return partial(
            EpisodeWorker, self.policy.state_dict(), *self.settings,
            credit=self._credit, gammas=gammas,
        )  # fmt: skip

    def tasks(self, outcomes: Sequence[Outcome]) -> list[Task]:
        """The centre's episodes, then every candidate's, terrain by terrain."""
        if outcomes:
            return []
        config, progress = self.config, self.progress
        self._population = self.searcher.ask(self.seeds(_SEARCH, 1)[0])
        due = is_due(config.fit_after, progress.fitted, progress.iteration)
        kept = math.ceil(OBSERVATIONS / config.center_terrains) if due else 0
        options = dict(config.curriculum[progress.level]) if config.curriculum else {}
        statistics = self.policy.normaliser.statistics
        maps = map_state(self.policy) if progress.fitted else {}
        tasks = [
            Task(self.searcher.center, statistics, seed, options, maps, kept, config.sample_actions)
            for seed in self.seeds(_CENTER, config.center_terrains)
        ]
        pairs = config.common_terrains == "pair"
        # Copies: a view of the population would be sent to a worker with all of it.
        for index, candidate in enumerate([candidate.clone() for candidate in self._population]):
            group = _FIRST_PAIR + index // 2 if pairs else _POPULATION
            tasks += [
                Task(candidate, statistics, seed, options, maps, sample=config.sample_actions)
                for seed in self.seeds(group, config.terrains)
            ]
        return tasks

    def update(self, outcomes: list[Outcome]) -> dict[str, float]:
        """Update the searcher with the returns; returns the row."""
        config, progress = self.config, self.progress
        center = [outcome.episode for outcome in outcomes[: config.center_terrains]]
        candidates = [outcome.episode for outcome in outcomes[config.center_terrains :]]
        rewards = np.array([e.reward for e in candidates]).reshape(config.popsize, -1)
        returns = torch.from_numpy(rewards.mean(1))
        judged = returns
        if self._credit is not None:
            own: Any = np.array([one.returns for one in outcomes[config.center_terrains :]])
            judged = torch.from_numpy(own.reshape(config.popsize, -1, own.shape[-1]).mean(1))
            shared = judged.sum(1, keepdim=True)
            judged = torch.cat((judged, shared), 1)  # the last judges layers before the last
        self.searcher.tell(self._population, judged)
        total = self.policy.normaliser.statistics
        for outcome in outcomes:
            total = total.merge(outcome.statistics)
        self.policy.normaliser.statistics = total
        if is_due(config.fit_after, progress.fitted, progress.iteration):
            self._fit_maps(outcomes)
        self._steps = sum(outcome.episode.steps for outcome in outcomes)
        progress.env_steps += self._steps
        progress.episodes += len(outcomes)
        values = episode_values(envs.find_task(config.env_id), center, candidates)
        row = {
            "env_steps": progress.env_steps,
            "episodes": progress.episodes,
            "reward_mean": float(returns.mean()),
            "reward_max": float(returns.max()),
            **values,
            "level": progress.level,
            "sigma": self.searcher.sigma,
        }
        success_rate = values["success_rate"]
        progress.advance(config, 0.0 if math.isnan(success_rate) else success_rate)
        return row

    def _fit_maps(self, outcomes: list[Outcome]) -> None:
        """Fit the centre's feature maps to the observations of its episodes."""
        seen = [observation for outcome in outcomes for observation in outcome.observations]
        chosen = [seen[i] for i in evenly(len(seen), OBSERVATIONS)]
        parts = {key: torch.from_numpy(np.stack([one[key] for one in chosen])) for key in chosen[0]}
        set_parameters(self.policy, self.searcher.center)
        with sound():
            self.policy.fit_attention(parts)
        self.progress.fitted = True

    def summary(self, row: dict[str, float], seconds: float) -> str:
        """Reward of the centre, level, and simulated seconds (or steps) per second."""
        speed, step_s = self._steps / seconds, self._step_s
        rate = f"{speed:.0f} steps/s" if math.isnan(step_s) else f"{speed * step_s:.1f} sim-s/s"
        level = f"level {row['level']}, " if self.config.curriculum else ""
        return f"reward {row['center_reward']:.3g}, {level}{rate}"

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The searcher's state; the saved policy is the one at its centre."""
        set_parameters(self.policy, self.searcher.center)
        tensors, numbers = self.searcher.state()
        return tensors, {"search": numbers}
