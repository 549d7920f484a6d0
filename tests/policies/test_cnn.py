"""The convolutional policy: that of DQN, small ones, and what does not fit it."""

import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

from policies import build

COLOURS = spaces.Box(0, 255, (7, 7, 3), np.uint8)


def batch(space, count=3):
    space.seed(0)
    return torch.from_numpy(np.stack([space.sample() for _ in range(count)]))


def test_it_is_the_network_of_stable_baselines3():
    """With the same weights and images divided by 255, NatureCNN gives the same features."""
    layers = pytest.importorskip("stable_baselines3.common.torch_layers")
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    policy = build({"name": "cnn", "image_scaling": (0, 255)}, space, spaces.Discrete(6))
    theirs = layers.NatureCNN(spaces.Box(0, 255, (4, 84, 84), np.uint8), features_dim=256)
    ours = [*policy.convolutions[0].layers, policy.dense_layer]
    mine = [one for one in theirs.modules() if isinstance(one, torch.nn.Conv2d | torch.nn.Linear)]
    for one, other in zip(mine, ours, strict=True):
        one.load_state_dict(other.state_dict())
    seen = batch(space)
    expected = theirs(seen.permute(0, 3, 1, 2) / 255)
    torch.testing.assert_close(policy.given({"observation": seen}), expected)


@pytest.mark.parametrize(
    ("space", "channels"),
    [
        (COLOURS, 64),
        (spaces.Dict({"image": COLOURS, "direction": spaces.Discrete(4)}), 64),
        (spaces.Box(0, 1, (2, 24, 32), np.float32), 32),
        (spaces.Box(0, 255, (4, 40, 50, 3), np.uint8), 64),
    ],
)
def test_it_takes_any_images_and_vectors(space, channels):
    policy = build({"name": "cnn", "features_dim": 8}, space, spaces.Discrete(3))
    assert policy.convolutions[0].layers[-1].out_channels == channels
    space.seed(0)
    observation = space.sample()
    policy.reset()
    assert policy.act(observation) in range(3)
    seen = policy.inputs.observations.batch_of_one(observation, torch.device("cpu"))
    policy.decide(seen).choices()[0].square().sum().backward()
    assert all(one.grad is not None and one.grad.any() for one in policy.parameters())


def test_initial_choices_are_nearly_equally_probable():
    policy = build({"name": "cnn"}, COLOURS, spaces.Discrete(4))
    (logits,) = policy.decide({"observation": batch(COLOURS, 64)}).choices()
    assert (logits.softmax(-1) - 0.25).abs().max() < 0.05


@pytest.mark.parametrize(
    ("settings", "space", "sentence"),
    [
        ({}, spaces.Box(0, 1, (3,)), "must be implicit_attention for observations without images"),
        ({"num_features": 4}, COLOURS, "num_features must be left out with the policy cnn"),
        ({"convolutions": [[8, 5, 1], [8, 5, 1]]}, COLOURS, "do not fit images of 7 x 7 pixels"),
        ({"controller": "vote"}, COLOURS, "with the controller vote"),
        ({"features_dim": 16384, "convolutions": [[4096, 1, 1]]}, COLOURS, "allocate"),
    ],
)
def test_what_does_not_fit_is_refused(settings, space, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        build({"name": "cnn", **settings}, space, spaces.Discrete(3))
