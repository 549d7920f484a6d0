"""Credit of an action's numbers: each is judged by the terms of the reward that depend on it.

An environment declares `reward_terms`, the numbers of the action that each term depends on, and
reports the terms in `info["reward_terms"]` at every step.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import envs
from training.collect.checked import EnvironmentFault, declared, number
from training.command.errors import shown
from training.io.config import UserError

TERMS = "reward_terms"
"""Key of `info` with the terms of a reward, and attribute of the environment that declares them."""
Credit = Mapping[str, Sequence[int]]
"""Numbers of the action, by the term of the reward that each is credited with."""


def declared_credit(
    env: gymnasium.Env[Any, Any], env_id: str, gammas: Sequence[float] | None
) -> Credit:
    """What an environment declares; `gammas` are the discounts that settings give.

    Raises:
        UserError: for an environment that declares no such terms, terms of another form or that
        leave out a number of the action, or another count of discounts.
    """
    found = declared(env, TERMS)
    if found is None or found == {}:
        raise UserError(f"credit must be shared for {env_id}, which declares no {TERMS}, got terms")
    try:
        credit = {name: tuple(map(operator.index, own)) for name, own in found.items()}
    except (AttributeError, TypeError):
        raise UserError(
            f"{TERMS} of {env_id} must be a dict from each term to the numbers of the action that "
            f"it depends on, such as {{'speed': (0, 1)}}, got {shown(found)}"
        ) from None
    size = math.prod(env.action_space.shape or ())
    credited = {number for own in credit.values() for number in own}
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
    return credit


def discounted(rewards: NDArray[np.float64], gamma: Any) -> NDArray[np.float64]:
    """Discounted sums of the rewards (steps, ...) from each step on."""
    total, found = 0.0, np.empty_like(rewards)
    for i in reversed(range(len(rewards))):
        total = rewards[i] + gamma * total
        found[i] = total
    return found


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records an episode's rewards and their terms, its last observation and how it ended.

    Args:
        env: the environment.
        credit: the terms that are recorded; None: none.

    Raises:
        EnvironmentFault: at the first step without a finite number for each of the terms.
    """

    rewards: list[float]
    terms: list[list[float]]

    def __init__(self, env: gymnasium.Env[Any, Any], credit: Credit | None = None) -> None:
        super().__init__(env)
        self._credit = credit or {}

    def reset(self, **options: Any) -> Any:
        self.rewards, self.terms, self._seed = [], [], options.get("seed")
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        following = self.env.step(action)
        self.observation, self.terminated = following[0], bool(following[2])
        self.rewards.append(float(following[1]))
        if self._credit:
            self.terms.append([self._term(following[4].get(TERMS), name) for name in self._credit])
        return following

    def _term(self, terms: Any, name: str) -> float:
        named = terms if isinstance(terms, Mapping) else {}
        found = number(named.get(name))
        if found is None or not math.isfinite(found):
            got = ", ".join(map(str, named)) if named else shown(terms)
            got = f"{shown(named[name])} for it" if name in named else got
            raise EnvironmentFault(
                f"info[{TERMS!r}] of {envs.name_of(self.env)} must hold {name}, which {TERMS} "
                f"declares, as a finite number at every step, got {got} at step "
                f"{len(self.rewards)} of the episode with seed {self._seed}"
            )
        return found

    def judged(self, numbers: Sequence[int]) -> NDArray[np.float64]:
        """Rewards (steps, numbers) by the terms that each number is credited with."""
        found = np.zeros((len(self.terms), len(numbers)))
        values = np.array(self.terms)
        for own, column in zip(self._credit.values(), values.T, strict=True):
            found += column[:, None] * [number in own for number in numbers]
        return found
