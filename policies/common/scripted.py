"""Scripted policies: the ceiling and the floor of a task."""

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from policies.common.action_parts import ActionParts

_COUNTED = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Oracle:
    """Plays the environment's expert, which has access to the simulator's state.

    Args:
        env: an environment with `expert_action()`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> NDArray[np.float32]:
        """The expert's action in the environment's current state."""
        action: NDArray[np.float32] = self._env.get_wrapper_attr("expert_action")()
        return action


class Blind:
    """Takes the zero action at every step.

    Args:
        env: the environment to act in.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        assert env.action_space.shape is not None
        self._action = np.zeros(env.action_space.shape, np.float32)

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> NDArray[np.float32]:
        """Zero."""
        return self._action.copy()


class Constant:
    """Takes the same action at every step.

    Args:
        action: an action of the environment.
    """

    def __init__(self, action: Any) -> None:
        self._action = action

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> Any:
        """A copy of the action."""
        return copy.deepcopy(self._action)


class Random:
    """Uniform actions from its own generator.

    Args:
        env: the environment to act in; its action space is a bounded Box, Discrete, MultiDiscrete,
            MultiBinary, or a Tuple or Dict of such.
        seed: seed of the generator.

    Raises:
        ValueError: for actions of another kind, or without bounds.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> None:
        if not _can_be_drawn(env.action_space):
            others = ", Discrete, MultiDiscrete, MultiBinary or a Tuple or Dict of such"
            allowed = "" if isinstance(env.action_space, spaces.Box) else others
            raise ValueError(
                f"the action space must be a bounded Box{allowed}, got {env.action_space}"
            )
        self._space = copy.deepcopy(env.action_space)
        self._space.seed(seed)
        self._rng = np.random.default_rng(seed)

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> Any:
        """An action drawn uniformly from the action space."""
        space = self._space
        if isinstance(space, ActionParts):
            return space.sample()
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            return np.asarray(self._rng.uniform(space.low, space.high), np.float32)
        return space.sample()


def _can_be_drawn(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Tuple):
        return all(map(_can_be_drawn, space.spaces))
    if isinstance(space, spaces.Dict):
        return all(map(_can_be_drawn, space.spaces.values()))
    bounded = isinstance(space, spaces.Box) and space.is_bounded()
    return bounded or isinstance(space, _COUNTED)
