"""The scripted policies."""

import gymnasium
import numpy as np
import pytest

from policies import Blind, Oracle, Random


class Walker(gymnasium.Env):
    """Something with an expert, to be wrapped."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (9,), np.float32)
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    calls = 0

    def expert_action(self):
        self.calls += 1
        return np.full(9, 0.1 * self.calls, np.float32)


def test_the_oracle_asks_the_expert_through_wrappers():
    oracle = Oracle(gymnasium.wrappers.TimeLimit(Walker(), 10))
    oracle.reset()
    assert [oracle.act(None)[0].round(1) for _ in range(2)] == [np.float32(0.1), np.float32(0.2)]


def test_blind_does_nothing_and_its_array_is_the_callers():
    blind = Blind(Walker())
    blind.reset()
    blind.act(None)[:] = 1
    assert not blind.act(None).any()


def test_random_draws_the_same_as_ever_within_one():
    """Published figures of the random walker stay what they are."""
    drawn = np.random.default_rng(5).uniform(-1, 1, 9).astype(np.float32)
    np.testing.assert_array_equal(Random(Walker(), 5).act(None), drawn)


def test_random_fills_the_bounds_of_every_dimension():
    walker = Walker()
    low, high = np.float32([-0.04, 0.0, -3.0]), np.float32([0.04, 0.2, -2.0])
    walker.action_space = gymnasium.spaces.Box(low, high)
    random = Random(walker)
    actions = np.stack([random.act(None) for _ in range(1000)])
    assert all(walker.action_space.contains(action) for action in actions)
    np.testing.assert_allclose(actions.min(0), low, atol=0.02)
    np.testing.assert_allclose(actions.max(0), high, atol=0.02)


def test_random_draws_a_single_number():
    space = gymnasium.spaces.Box(-2.0, 2.0, (), np.float32)
    env = type("One", (), {"action_space": space})()
    assert Random(env, 0).act(None).shape == ()


def test_random_needs_bounds():
    walker = Walker()
    walker.action_space = gymnasium.spaces.Box(-np.inf, 1.0, (2,), np.float32)
    with pytest.raises(ValueError, match="must be a bounded Box, got Box"):
        Random(walker)
