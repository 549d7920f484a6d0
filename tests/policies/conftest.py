"""Stones that are walked over, for policies that remember the ground."""

from contextlib import closing

import gymnasium
import pytest

import envs  # noqa: F401 - registers SteppingStones-v0
from tests.policies.walks import FRONT, walked


@pytest.fixture(scope="module")
def stones():
    with closing(gymnasium.make("SteppingStones-v0", episode_s=1.0, **FRONT)) as made:
        yield made


@pytest.fixture(scope="module")
def turning():
    with closing(
        gymnasium.make("SteppingStones-v0", path_turn="left", episode_s=1.0, **FRONT)
    ) as made:
        yield made


@pytest.fixture(scope="module")
def walk(stones):
    """Observations and actions of an expert's walk over two terrains, and where each begins."""
    return walked(stones)
