"""Searches for an action run traced after a while, the same to the bit."""

import copy

import numpy as np
import pytest
import torch

from policies.common import compiled
from tests.policies.vision_cases import generator, make, observation

AFTER = 3


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(compiled, "AFTER", AFTER)


def episode(policy, steps=2 * AFTER):
    policy.reset()
    return np.stack([policy.act(observation(seed)) for seed in range(steps)])


def untraced(policy, monkeypatch):
    """The actions of a copy that is never traced."""
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "AFTER", 10**9)
        fresh = copy.deepcopy(policy)
        actions = episode(fresh)
        assert fresh._compiled._run is None
    return actions


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5, "rounds": 3},
        {"head": "joint", "optimiser": "derivative_free"},
        {"head": "explicit"},
    ],
)
def test_actions_are_the_same_to_the_bit(settings, monkeypatch):
    policy = make(**settings)
    episode(policy)
    assert policy._compiled._run is not None
    np.testing.assert_array_equal(episode(policy), untraced(policy, monkeypatch))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(-1.5)
    np.testing.assert_array_equal(episode(policy), untraced(policy, monkeypatch))


def test_chains_along_gradients_are_not_traced(monkeypatch):
    policy = make(head="joint", optimiser="langevin")
    actions = episode(policy)
    assert policy._compiled._run is None
    np.testing.assert_array_equal(actions, untraced(policy, monkeypatch))


def test_gradients_pass_through_a_search_all_the_same():
    policy = make(head="explicit")
    episode(policy)
    rgb, pose = policy._batch(observation())
    action = policy.decided(rgb, pose, generator())
    (gradient,) = torch.autograd.grad(action.sum(), policy.encoder.patches.weight)
    assert gradient.abs().sum() > 0
