"""What every policy promises: actions in the space, `reset`, files, seeds and copies."""

import copy
import pickle
from contextlib import closing

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import envs
from policies import build
from tests.policies import cases, vision_cases
from tests.policies.walks import ARMS, FRONT

POLICIES = {
    "implicit": [
        {},
        {"controller": "vote"},
        {"controller": "mlp", "selection": "random", "feature_map": "oprf"},
        {"controller": "mlp", "selection": "all", "standardise": True},
        {"controller": "mlp", "variant": "rank", "feature_map": "softmax"},
        {"controller": "gru", "variant": "trans", "last_action": True},
        {"controller": "lstm", "repair": "full"},
    ],
    "vision": [
        {"head": "autoregressive"},
        {"head": "joint"},
        {"head": "joint", "optimiser": "derivative_free"},
        {"head": "explicit"},
    ],
    "pooled": [{"controller": "mlp", "patch": (8, 8)}, {"controller": "gru", "patch": (8, 8)}],
    "places": [ARMS[arm] for arm in ("linear", "exact", "grid", "gru", "learned choice")],
}
CASES = [(kind, settings) for kind, several in POLICIES.items() for settings in several]


@pytest.fixture(scope="module")
def stones():
    with closing(gymnasium.make(envs.STEPPING_STONES, **FRONT)) as env:
        first, _ = env.reset(seed=3)
        still = np.zeros(9, np.float32)
        yield env, [first, *(env.step(still)[0] for _ in range(2))]


@pytest.fixture(params=CASES, ids=str)
def made(request, stones):
    """A function that builds the policy, its action space, and three observations."""
    (kind, settings), (env, seen) = request.param, stones
    where, more = (cases.OBSERVATIONS, cases.ACTIONS), {}
    if kind == "vision":
        where = vision_cases.OBSERVATION_SPACE, vision_cases.ACTION_SPACE
        settings = {"name": "vision_performer", **vision_cases.SMALL, **settings}
        seen = [vision_cases.observation(seed) for seed in range(3)]
    elif kind == "places":
        where, more = (
            (env.observation_space, env.action_space),
            {"geometry": env.unwrapped.geometry},
        )
        settings = {"name": "place_memory", **settings}
    else:
        seen = [cases.observation(seed) for seed in range(3)]
        form = {"name": "vision_performer", "form": "pooled"} if kind == "pooled" else {}
        settings = {**form, **settings}
    return lambda **own: build({**settings, **own}, *where, **more), where[1], seen


def drawn(policy):
    """The policy with all its parameters drawn, also those that start at zero."""
    generator = torch.Generator().manual_seed(0)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return policy


def actions(policy, seen):
    policy.reset()
    return np.stack([policy.act(one) for one in seen])


def test_it_acts_in_its_space_and_alike_after_a_reset(made):
    make, space, seen = made
    policy = drawn(make())
    found = actions(policy, seen)
    assert found.dtype == np.float32
    assert all(space.contains(action) for action in found)
    assert (found[0] != found[1]).any()
    np.testing.assert_array_equal(actions(policy, seen), found)


def test_its_state_goes_through_a_file(made, tmp_path):
    """Random projections and statistics are part of it; copies act as the policy does."""
    make, _, seen = made
    policy, other = drawn(make(feature_seed=5)), make(init_seed=1)
    save_file(policy.state_dict(), tmp_path / "policy.safetensors")
    found = actions(policy, seen)
    assert (actions(other, seen) != found).any()
    other.load_state_dict(load_file(tmp_path / "policy.safetensors"))
    for same in (other, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        np.testing.assert_array_equal(actions(same, seen), found)


def test_initial_parameters_come_from_their_seed_alone(made):
    make, *_ = made
    first = make().state_dict()
    torch.manual_seed(123)
    before = torch.random.get_rng_state()
    second = make().state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    own = dict(make(init_seed=1).named_parameters())
    assert any(
        not torch.equal(parameter, own[name]) for name, parameter in make().named_parameters()
    )
    same = dict(make(feature_seed=1).named_parameters())
    assert all(torch.equal(parameter, same[name]) for name, parameter in make().named_parameters())


def test_it_leaves_the_meta_device_as_it_is_built_elsewhere(made):
    make, _, seen = made
    expected = make()
    found = actions(expected, seen)
    with torch.device("meta"):
        emptied = make()
    assert {tensor.device.type for tensor in emptied.buffers()} <= {"meta"}
    for policy in (emptied, make()):
        policy.to_empty(device="cpu")
        for tensors in ("named_parameters", "named_buffers"):
            ours, theirs = (
                dict(getattr(one, tensors)(remove_duplicate=False)) for one in (policy, expected)
            )
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
        np.testing.assert_array_equal(actions(policy, seen), found)
