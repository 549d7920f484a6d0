"""The map of what a policy remembers about its robot: it is what the controller is given."""

import numpy as np
import pytest
import torch

import envs  # noqa: F401 - registers SteppingStones-v0
import policies
from policies.place_memory.remembered import places_about, seen_about
from tests.policies import walks
from tests.policies.walks import build, walked

ARMS = {
    name: walks.ARMS[name]
    for name in ("linear", "delta", "trig", "exact", "fitted grid", "none", "gru", "learned keys")
} | {"exact": {"memory": "exact", "exact_s": 1.0}, "repaired": {"repair": "holes"}}
PLANE = {
    "linear": {"num_features": 200, "width_m": 0.05},
    "grid": {"memory": "grid", "cell_m": 0.02},
    "none": {"memory": "none", "num_features": 60, "width_m": 0.1},
}


def taken(policy, walk):
    """The policy after the second walk, its last observation, and what the controller read of the
    memory then, (legs, rows, reads)."""
    seen, parts, _, starts = walk
    policy.reset()
    begins = int(starts.nonzero()[-1])
    for observation in seen[begins:]:
        policy.act(observation)
    steps = {key: part[None, begins:] for key, part in parts.items()}
    with torch.no_grad():
        outputs, _ = policy.recalled(steps, starts[None, begins:], None)
    rows = 3 if policy.is_plane else 1
    given = outputs["recalled"][0, -1, : 4 * rows * policy.config.reads]
    return seen[-1], (given.view(4, rows, -1).numpy() + 1) / 2


@pytest.mark.parametrize("arm", ["linear", "trig", "exact", "fitted grid", "gru", "repaired"])
def test_the_strip_is_what_the_legs_read(stones, walk, arm):
    policy = build(stones, **ARMS[arm])
    observation, reads = taken(policy, walk)
    ground = policy.remembered(observation)
    assert ground.shares.shape == ground.seen.shape == (1, 171)
    asked_m = ground.feet_m[:, :1] + policy.reads_m.numpy()
    strip = np.interp(asked_m, ground.forward_m, ground.shares[0])
    assert np.abs(strip - reads[:, 0]).mean() < 0.02
    assert ground.reach_m == 0.2
    assert ground.feet_m[:, 0] == pytest.approx([0.3, 0.3, -0.135, -0.135], abs=0.08)


@pytest.mark.parametrize("arm", PLANE)
def test_the_map_is_what_the_legs_read(turning, arm):
    policy = build(turning, **PLANE[arm])
    observation, reads = taken(policy, walked(turning))
    ground = policy.remembered(observation)
    assert ground.shares.shape == ground.seen.shape == (61, 171)
    for (forward_m, left_m), rows in zip(ground.feet_m, reads, strict=True):
        for aside_m, row in zip((-0.04, 0.0, 0.04), rows, strict=True):
            nearest = np.abs(ground.left_m - left_m - aside_m).argmin()
            asked_m = forward_m + policy.reads_m.numpy()
            found = np.interp(asked_m, ground.forward_m, ground.shares[nearest])
            assert np.abs(found - row).mean() < 0.06


@pytest.mark.parametrize("arm", ["linear", "fitted grid", "exact", "gru", "repaired"])
def test_asking_changes_nothing(stones, walk, arm):
    def actions(asks):
        policy = build(stones, **ARMS[arm])
        found = []
        for observation in walk[0][:5]:
            found.append(policy.act(observation))
            for _ in range(asks):
                policy.remembered(observation)
        return np.stack(found)

    np.testing.assert_array_equal(actions(0), actions(2))


@pytest.mark.parametrize("arm", ["linear", "exact", "none"])
def test_in_the_dark_what_was_seen_moves_by_and_without_memory_is_gone(stones, arm):
    """The robot walks on while its camera shows nothing."""
    policy = build(stones, **ARMS[arm])
    observation, _ = stones.reset(seed=8)
    policy.act(observation)
    lit = policy.remembered(observation)
    assert lit.seen.any()
    assert lit.shares.max() > 0.9
    for _ in range(12):
        observation = stones.step(stones.unwrapped.expert_action())[0]
        observation["depth"][:] = 1.5
        policy.act(observation)
    dark = policy.remembered(observation)
    assert not dark.seen.any()
    if arm == "none":
        assert not dark.shares.any()
        return
    way_m = float(policy._memory.seen.odometry[0, 0])
    assert way_m > 0.05
    here = dark.forward_m < 0.9 - way_m
    expected = np.interp(dark.forward_m[here] + way_m, lit.forward_m, lit.shares[0])
    assert np.abs(dark.shares[0, here] - expected).mean() < 0.01
    assert np.abs(dark.shares - lit.shares).mean() > 0.03


def test_seen_is_where_pixels_are_and_between_them():
    forward_m, left_m = places_about(2, torch.zeros(1))
    tokens_m = torch.tensor([[0.2, -0.1], [0.3, -0.1], [0.6, 0.2], [2.0, 0.0], [0.3, 0.5]])
    seen = seen_about(forward_m, left_m, tokens_m)
    assert seen[20, 100:111].all()  # at -0.1, from 0.2 to 0.3 m ahead
    assert seen[50, 140]
    assert int(seen.sum()) == 11 + 1
    along = seen_about(forward_m, torch.zeros(1), tokens_m)
    assert along[0].nonzero().flatten().tolist() == [*range(100, 111), 140]
    assert not seen_about(forward_m, left_m, tokens_m[:0]).any()


def test_other_policies_remember_no_ground(stones):
    policy = policies.build_for({"controller": "mlp"}, stones)
    assert policy.remembered(stones.reset(seed=1)[0]) is None
