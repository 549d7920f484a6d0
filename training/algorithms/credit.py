"""Credit of an action's numbers: each is judged by the terms of the reward that depend on it.

An environment declares `reward_terms`, the numbers of the action that each term depends on, and
reports the terms in `info["reward_terms"]` at every step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import envs
from training.collect.checked import TERMS, EnvironmentFault
from training.io.config import UserError

Credit = Mapping[str, Sequence[int]]
"""Numbers of the action, by the term of the reward that each is credited with."""


def declared_credit(
    env: gymnasium.Env[Any, Any], env_id: str, gammas: Sequence[float] | None
) -> Credit:
    """What an environment declares; `gammas` are the discounts that settings give.

    Raises:
        UserError: for an environment that declares no such terms, terms that leave out a number of
        the action, or another count of discounts.
    """
    declared = env.get_wrapper_attr(TERMS) if env.has_wrapper_attr(TERMS) else None
    if not declared:
        raise UserError(f"credit must be shared for {env_id}, which declares no {TERMS}, got terms")
    size = math.prod(env.action_space.shape or ())
    credited = {number for own in declared.values() for number in own}
    if credited != set(range(size)):
        raise UserError(
            f"{TERMS} of {env_id} must credit each of the action's {size} numbers, counted from "
            f"0, got {', '.join(map(str, sorted(credited))) or 'none'}"
        )
    if gammas is not None and len(gammas) != size:
        raise UserError(
            f"gammas must have a discount for each of the action's {size} numbers, got "
            f"{len(gammas)}"
        )
    return {name: tuple(own) for name, own in declared.items()}


def discounted(rewards: NDArray[np.float64], gamma: Any) -> NDArray[np.float64]:
    """Discounted sums of the rewards (steps, ...) from each step on."""
    total, found = 0.0, np.empty_like(rewards)
    for i in reversed(range(len(rewards))):
        total = rewards[i] + gamma * total
        found[i] = total
    return found


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records an episode's rewards and their terms, its last observation and how it ended."""

    rewards: list[float]
    terms: list[Mapping[str, float]]

    def reset(self, **options: Any) -> Any:
        self.rewards, self.terms = [], []
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        following = self.env.step(action)
        self.observation, self.terminated = following[0], bool(following[2])
        self.rewards.append(float(following[1]))
        self.terms.append(following[4].get(TERMS, {}))
        return following

    def judged(self, credit: Credit, numbers: Sequence[int]) -> NDArray[np.float64]:
        """Rewards (steps, numbers) by the terms that each number is credited with."""
        found = np.zeros((len(self.terms), len(numbers)))
        for name, own in credit.items():
            if any(name not in terms for terms in self.terms):
                raise EnvironmentFault(
                    f"info[{TERMS!r}] of {envs.name_of(self.env)} must hold {name}, which "
                    f"{TERMS} declares, at every step, got {', '.join(self.terms[-1]) or 'none'}"
                )
            values = np.array([float(terms[name]) for terms in self.terms])
            found += values[:, None] * [number in own for number in numbers]
        return found
