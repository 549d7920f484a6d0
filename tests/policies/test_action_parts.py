"""Actions of several parts as one vector, and the heads that decide on them."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

import policies
from policies.common.action_parts import ActionParts
from policies.common.heads import BoxHead, head_for

BOX = spaces.Box(-2, 3, (2, 2), np.float32)
MANY = spaces.MultiDiscrete(np.array([[2, 1], [3, 4]]), start=np.array([[1, 2], [0, 0]]))
SPACES = {
    "arm and gripper": spaces.Dict({"arm": BOX, "gripper": spaces.Discrete(3, start=-1)}),
    "nested": spaces.Dict(
        {
            "arm": spaces.Tuple((BOX, spaces.Discrete(1), spaces.Box(0, 9, (2,), np.int64))),
            "many": MANY,
            "bits": spaces.MultiBinary((2, 1)),
        }
    ),
    "numbers": spaces.Tuple((BOX, spaces.Box(-np.inf, np.inf, (1,), np.float64))),
    "choices": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(1))),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_an_action_is_a_vector_and_back(space):
    parts = ActionParts(space)
    parts.seed(0)
    for _ in range(50):
        vector = parts.sample()
        action = parts.nested(vector)
        assert parts.contains(vector)
        assert space.contains(action)
        np.testing.assert_array_equal(parts.joined(action), vector)
    again = pickle.loads(pickle.dumps(copy.deepcopy(parts)))
    for one in (parts, again):
        one.seed(7)
    np.testing.assert_array_equal(parts.sample(), again.sample())


def test_numbers_between_choices_are_rounded_and_bounds_kept():
    parts = ActionParts(SPACES["arm and gripper"])
    assert parts.bins == (0, 0, 0, 0, 3)
    found = parts.nested(np.array([9, -9, 0.5, 0, 0.6]))
    np.testing.assert_array_equal(found["arm"], [[3, -2], [0.5, 0]])
    assert found["gripper"] == 1


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_head_gives_actions_of_the_space_and_learns_one(space):
    head = head_for(space)
    torch.manual_seed(0)
    numbers = torch.randn(1, head.size, requires_grad=True)
    space.seed(1)
    wanted = ActionParts(space).joined(space.sample())
    optimiser = torch.optim.Adam([numbers], 0.1)
    for _ in range(300):
        optimiser.zero_grad()
        head(numbers).loss(torch.from_numpy(wanted)[None]).backward()
        optimiser.step()
    found = head.given(head(numbers).action()[0].detach())
    assert space.contains(found)
    close = np.abs(ActionParts(space).joined(found) - wanted)
    assert (close < 0.6).all()
    assert not close[np.array(ActionParts(space).bins) > 0].any()


def test_numbers_alone_need_no_choices():
    assert type(head_for(ActionParts(SPACES["numbers"]))) is BoxHead


def test_a_policy_of_python_acts_in_the_parts():
    seen = spaces.Box(-1, 1, (3,), np.float32)
    policy = policies.build({}, seen, SPACES["nested"])
    policy.reset()
    assert SPACES["nested"].contains(policy.act(np.zeros(3, np.float32)))


@pytest.mark.parametrize("part", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_parts_of_another_kind_are_refused(part):
    with pytest.raises(ValueError, match=r"action_space must hold Box, .* alone, got .* for word"):
        ActionParts(spaces.Dict({"word": part, "arm": BOX}))


def test_an_action_without_numbers_is_refused():
    with pytest.raises(ValueError, match="action_space must hold numbers"):
        ActionParts(spaces.Tuple((spaces.Discrete(1),)))
