"""A wrapper, and a function that registers an environment."""

import gymnasium
import numpy as np

from tests.training.dot_env import DotEnv


class Dimmed(gymnasium.ObservationWrapper):
    """Images times the product of two factors, which must be a tuple."""

    def __init__(self, env, factors: tuple[float, float]):
        super().__init__(env)
        if not isinstance(factors, tuple):
            raise TypeError(f"factors must be a tuple, got {factors!r}")
        self._by = np.prod(factors)

    def observation(self, observation):
        return (self._by * observation).astype(np.uint8)


def register():
    """Register an environment."""
    gymnasium.register("Called-v0", DotEnv)
