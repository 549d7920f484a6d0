"""The only episode loop: training, evaluation and video all run `run_episode`."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
import numpy as np

import envs
from training.command.errors import UserError

ONCE = "success_once"
"""Key of `info` in an episode that succeeded for a while, but not at the end."""


class Policy(Protocol):
    """The interface that the loop requires of a policy, learned or scripted."""

    def reset(self) -> None:
        """Reset the state from an earlier episode."""

    def act(self, observation: Any) -> np.ndarray:
        """Action (action_dim,) for one observation of the environment."""


class PolicyError(FloatingPointError):
    """Raised when a policy returns an action that is not finite."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The outcome of one episode."""

    seed: int
    """Seed given to `env.reset`."""
    reward: float
    """Undiscounted sum of the rewards."""
    steps: int
    """Decisions taken."""
    success: bool | None
    """`info["success"]` at the end; None for environments without it."""
    outcomes: dict[str, float]
    """Outcomes of the environment's description, by name, as far as `info` holds them at the end;
    1.0 or 0.0 for events."""
    info: dict[str, Any] = field(repr=False)
    """The last `info` of the environment, with `success_once` where it succeeded for a while, but
    not at the end."""

    @property
    def succeeded_once(self) -> bool:
        """Whether it succeeded at the end, or at any step before."""
        return bool(self.success or self.info.get(ONCE))


OnStep = Callable[[gymnasium.Env, Any, np.ndarray, float, Policy], None]


def run_episode(
    env: gymnasium.Env,
    policy: Policy,
    seed: int,
    *,
    options: dict[str, Any] | None = None,
    on_step: OnStep | None = None,
    simulated: bool = True,
) -> Episode:
    """Run one episode of `policy` in `env`, from `reset(seed=seed, options=options)` to its end.

    `on_step(env, observation, action, reward, policy)` is called after every step with the
    observation that the action answers. Raises PolicyError when an action is not finite, before
    the environment sees it, and FloatingPointError when the rewards do not add up to a number.
    UserError where the environment has no simulator but spaces alone, unless `simulated` is False.
    """
    if simulated and env.metadata.get("spaces_only"):
        raise UserError(
            f"{envs.name_of(env)} has the spaces of a dataset and no simulator, so no episode can "
            "be played: validation losses are in metrics.csv, and deploy.export writes the policy"
        )
    observation, info = env.reset(seed=seed, options=options)
    policy.reset()
    total, steps, terminated, truncated, once = 0.0, 0, False, False, False
    while not (terminated or truncated):
        action = policy.act(observation)
        if not _is_finite(action):
            raise PolicyError(
                f"policy output (action) at step {steps} of the episode with seed {seed} is "
                f"{np.array2string(np.asarray(action), precision=3, threshold=12)}, "
                "where every number must be finite"
            )
        if on_step is not None:  # an environment may write the next observation into this one
            observation = deepcopy(observation)
        following, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        steps += 1
        once = once or bool(info.get("success"))
        if on_step is not None:
            on_step(env, observation, action, float(reward), policy)
        observation = following
    if not math.isfinite(total):
        raise FloatingPointError(
            f"{envs.name_of(env)}: the rewards of the episode with seed {seed} add up to {total}, "
            "where a finite number is expected"
        )
    if once and not info["success"]:
        info = {ONCE: True, **info}
    return Episode(
        seed=seed,
        reward=total,
        steps=steps,
        success=bool(info["success"]) if "success" in info else None,
        outcomes=_outcomes(env, info),
        info=info,
    )


def _is_finite(action: Any) -> bool:
    """Whether every number of an action is finite, including nested parts."""
    if isinstance(action, tuple):
        return all(map(_is_finite, action))
    return bool(np.isfinite(action).all())


def _outcomes(env: gymnasium.Env, info: Mapping[str, Any]) -> dict[str, float]:
    """Raises FloatingPointError if a value is not a number."""
    task = envs.task_of(env)
    outcomes = () if task is None else task.outcomes
    try:
        return {one.name: float(info[one.name]) for one in outcomes if one.name in info}
    except (TypeError, ValueError):
        odd = {one.name: info[one.name] for one in outcomes if one.name in info}
        raise FloatingPointError(
            f"info holds {odd}, where numbers are needed, as the description of "
            f"{envs.name_of(env)} has them"
        ) from None


def finite_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """The part of an environment's `info` that is recorded: its finite numbers."""
    kinds = (bool, int, float, np.bool_, np.integer, np.floating)
    numbers = {key: float(value) for key, value in info.items() if isinstance(value, kinds)}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}
