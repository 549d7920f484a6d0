"""Two arms' poses and actions as their mean and half their difference."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from policies import VisionPolicyConfig, build
from policies.vision_performer.policy import from_mean_and_difference, to_mean_and_difference
from tests.policies.vision_cases import OBSERVATION_SPACE, SMALL, generator, observation

POSES = spaces.Dict({**OBSERVATION_SPACE.spaces, "pose": spaces.Box(-9, 9, (6,), np.float32)})
LIMITS = np.array([0.04, 0.2] * 2, np.float32)
ACTIONS = spaces.Box(-LIMITS, LIMITS)


def make(**settings):
    return build(VisionPolicyConfig(**{**SMALL, "two_arms": True, **settings}), POSES, ACTIONS)


def test_halves_come_back():
    both = torch.randn(7, 12, generator=generator())
    parts = to_mean_and_difference(both)
    torch.testing.assert_close(from_mean_and_difference(parts), both)
    torch.testing.assert_close(parts[:, :6], (both[:, :6] + both[:, 6:]) / 2)
    torch.testing.assert_close(parts[:, 6:], (both[:, :6] - both[:, 6:]) / 2)


def data(count=200):
    """Arms with any common motion and small differences."""
    rng = np.random.default_rng(0)
    together, apart = rng.uniform(-1, 1, (count, 2)), 0.1 * rng.uniform(-1, 1, (count, 2))
    actions = np.concatenate((together + apart, together - apart), -1) * LIMITS / 1.1
    return rng.normal(0, 1, (count, 6)), actions


def test_the_difference_has_a_range_of_its_own():
    policy = make()
    poses, actions = data()
    policy.set_statistics(poses, actions)
    normal = policy.normalised(torch.from_numpy(actions).float())
    for part in normal.T:  # the difference is a tenth as large, and fills its range as well
        assert 0.85 < float(part.max()) < 0.95
        assert -0.95 < float(part.min()) < -0.85
    pairs = torch.from_numpy(poses).float()
    mean = to_mean_and_difference(pairs).mean(0)
    torch.testing.assert_close(policy.normaliser.mean.float(), mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("head", ["autoregressive", "explicit"])
def test_the_action_is_that_of_the_arms(head):
    """With a head that always returns the highest mean and no difference, both arms do the same."""
    policy = make(head=head)
    policy.set_statistics(*data())
    normal = torch.tensor([[0.8, 0.8, 0.0, 0.0]])
    policy._search = lambda context, noise: normal
    seen = {**observation(), "pose": np.zeros(6, np.float32)}
    action = policy.act(seen)
    assert ACTIONS.contains(action)
    np.testing.assert_allclose(action[:2], action[2:], atol=0.02 * 0.2)
    assert action[0] > 0.02
    back = policy.normalised(torch.from_numpy(action))
    torch.testing.assert_close(back, normal[0], atol=1e-4, rtol=0)


def test_halves_are_needed():
    odd = spaces.Box(-1, 1, (3,), np.float32)
    with pytest.raises(ValueError, match=r"two_arms must be false .*, got 6 and 3 numbers"):
        build(VisionPolicyConfig(**SMALL, two_arms=True), POSES, odd)
