"""Policies that were built on the meta device, or emptied, are those that their settings name."""

import pytest
import torch

from policies import build
from tests.policies.cases import ACTIONS, OBSERVATIONS
from tests.policies.vision_cases import ACTION_SPACE, OBSERVATION_SPACE, SMALL

CASES = [
    ({"feature_map": "oprf"}, OBSERVATIONS, ACTIONS),
    ({"selection": "random", "controller": "mlp"}, OBSERVATIONS, ACTIONS),
    *(
        ({"name": "vision_performer", "head": head, **SMALL}, OBSERVATION_SPACE, ACTION_SPACE)
        for head in ("autoregressive", "joint", "explicit")
    ),
]


@pytest.mark.parametrize(("settings", "observations", "actions"), CASES)
def test_a_policy_leaves_the_meta_device_as_it_is_built_elsewhere(settings, observations, actions):
    expected = build(settings, observations, actions)
    with torch.device("meta"):
        emptied = build(settings, observations, actions)
    assert {tensor.device.type for tensor in emptied.buffers()} == {"meta"}
    for policy in (emptied, build(settings, observations, actions)):
        policy.to_empty(device="cpu")
        pairs = zip(
            (*policy.parameters(), *policy.buffers()),
            (*expected.parameters(), *expected.buffers()),
            strict=True,
        )
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
