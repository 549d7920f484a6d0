"""Actions that are drawn by the logits of choices."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from policies import build, compile_act
from policies.common.sampling import Sampled

SEEN, CHOICES = spaces.Box(-1, 1, (3,)), spaces.MultiDiscrete([2, 3], start=[1, 0])
GIVEN = np.array([0.5, -0.2, 0.1], np.float32)


def played(policy, seed, steps, after=None):
    sampled = Sampled(compile_act(policy, after) if after else policy)
    sampled.seed(seed)
    sampled.reset()
    return np.array([sampled.act(GIVEN) for _ in range(steps)])


@pytest.mark.parametrize("settings", [{}, {"controller": "gru"}, {"last_action": True}])
def test_an_episode_depends_on_its_seed_alone(settings):
    policy = build({"hidden": [4], "controller": "mlp", **settings}, SEEN, CHOICES)
    one, other = played(policy, 7, 40), played(policy, 8, 40)
    assert (one != other).any()
    np.testing.assert_array_equal(one, played(policy, 7, 40))
    np.testing.assert_array_equal(one, played(policy, 7, 40, after=10))
    assert all(action in CHOICES for action in one)


def test_an_action_of_several_parts_is_drawn():
    arm = spaces.Dict({"move": spaces.Box(-1, 1, (2,)), "grip": spaces.Discrete(2)})
    sampled = Sampled(build({"hidden": [4], "last_action": True}, SEEN, arm))
    sampled.seed(0)
    sampled.reset()
    found = [sampled.act(GIVEN) for _ in range(20)]
    assert all(action in arm for action in found)
    assert {int(action["grip"]) for action in found} == {0, 1}


def test_choices_come_as_often_as_their_probabilities():
    """2000 draws: the largest deviation of 5 shares is below 0.05 but for a chance of 1e-4."""
    policy = build({"hidden": []}, SEEN, CHOICES)
    found = played(policy, 0, 2000, after=10) - CHOICES.start
    logits = policy.decide({"observation": torch.from_numpy(GIVEN)[None]}).choices()
    for column, of_choice in zip(found.T, logits, strict=True):
        shares = np.bincount(column, minlength=of_choice.shape[-1]) / len(column)
        np.testing.assert_allclose(shares, of_choice[0].softmax(-1).detach(), atol=0.05)


def test_numbers_stay_as_they_are_and_nothing_else_is_drawn():
    box = spaces.Box(-1, 1, (2,))
    policy = build({"hidden": [], "bins": (3, 0)}, SEEN, box)
    own = policy.act(GIVEN)
    found = played(policy, 0, 30)
    assert len({*found[:, 0]}) > 1
    assert {*found[:, 1]} == {own[1]}
    with pytest.raises(ValueError, match="actions are numbers, where choices can be drawn"):
        Sampled(build({"hidden": []}, SEEN, box))
    with pytest.raises(ValueError, match="have probabilities of actions, got Identity"):
        Sampled(torch.nn.Identity())
