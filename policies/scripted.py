"""Scripted policies: the ceiling and the floor of a task."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

__all__ = ["Blind", "Oracle", "Random"]


class Oracle:
    """Plays the environment's own expert, which knows what policies must see.

    Args:
        env: an environment with `expert_action()`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> NDArray[np.float32]:
        """The expert's action in the environment's present state."""
        action: NDArray[np.float32] = self._env.get_wrapper_attr("expert_action")()
        return action


class Blind:
    """Corrects nothing: every action is zero.

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


class Random:
    """Uniform actions from its own generator.

    Args:
        env: the environment to act in; its action space is a bounded Box.
        seed: of the generator.

    Raises:
        ValueError: for actions of another kind, or without bounds.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> None:
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or not space.is_bounded():
            raise ValueError(f"the action space must be a bounded Box, got {space}")
        self._low, self._high = space.low, space.high
        self._rng = np.random.default_rng(seed)

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> NDArray[np.float32]:
        """A uniform action within the bounds of the action space."""
        return self._rng.uniform(self._low, self._high).astype(np.float32)
