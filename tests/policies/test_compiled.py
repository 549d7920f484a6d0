"""Decisions of a long-lived policy are the same to the bit, whatever changes in it."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from attention.components import watched
from policies.common import compiled
from tests.policies.cases import batch, make, observation
from training.analysis.op_counter import OpCounter

AFTER = 3


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(compiled, "AFTER", AFTER)


def long_lived(**settings):
    """A policy that has taken decisions enough, and a copy that has taken none."""
    policy = make(**settings)
    for seed in range(AFTER):
        policy.act(observation(seed))
    return policy, copy.deepcopy(policy)


def is_traced(policy):
    return policy._compiled._run is not None


def decided(policy, seed):
    """By the policy's own methods, without `act`."""
    with torch.no_grad():
        return policy.decide(batch(observation(seed))).action()[0].numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {"controller": "vote", "patch": (1, 1)},
        {"controller": "mlp", "feature_map": "angular_hybrid"},
        {"controller": "mlp", "variant": "rank", "feature_map": "positive"},
        {"controller": "mlp", "variant": "trans", "score_step": 0.0},
    ],
)
def test_actions_are_the_same_to_the_bit(settings):
    policy, fresh = long_lived(**settings)
    assert is_traced(policy)
    assert not is_traced(fresh)
    assert not is_traced(pickle.loads(pickle.dumps(policy)))
    for seed in range(10, 14):
        action = policy.act(observation(seed))
        np.testing.assert_array_equal(action, decided(fresh, seed))
    assert is_traced(policy)


def in_place(policy):
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(-1.5)


def statistics(policy):
    policy.set_statistics(batch(*map(observation, range(5))))


def replaced(policy):
    policy.controller.layers[0].weight = nn.Parameter(-policy.controller.layers[0].weight.data)


def another_module(policy):
    other = make(controller="mlp", drawn=False, init_seed=5)
    policy.controller = other.controller


def drawn_anew(policy):
    policy.selection.features.redraw(torch.Generator().manual_seed(7))


def loaded(policy):
    policy.load_state_dict(make(controller="mlp", drawn=False, init_seed=5).state_dict())


@pytest.mark.parametrize(
    "change", [in_place, statistics, replaced, another_module, drawn_anew, loaded]
)
def test_what_changes_counts_at_once(change):
    policy, _ = long_lived(controller="mlp")
    before = policy.act(observation(20))
    change(policy)
    for _ in range(2 * AFTER):
        after = policy.act(observation(20))
        np.testing.assert_array_equal(after, decided(policy, 20))
    assert (after != before).any()
    assert is_traced(policy)


def test_a_search_reads_new_parameters_without_tracing_anew():
    policy, _ = long_lived(controller="mlp")
    run = policy._compiled._run
    in_place(policy)
    np.testing.assert_array_equal(policy.act(observation(3)), decided(policy, 3))
    assert policy._compiled._run is run


def test_statistics_that_are_written_again_are_read_without_tracing_anew():
    """Whether there are any decides what is done, and that is read where they were written."""
    policy, _ = long_lived(controller="mlp")
    statistics(policy)
    for seed in range(2 * AFTER):
        policy.act(observation(seed))
    run = policy._compiled._run
    for observations in (batch(*map(observation, range(3, 9))), batch(observation(1))):
        policy.set_statistics(observations)
        np.testing.assert_array_equal(policy.act(observation(3)), decided(policy, 3))
        assert (policy._compiled._run is run) == (len(observations["proprio"]) > 1)


def test_maps_that_are_written_again_are_read_without_tracing_anew():
    """As a search's workers write those of the iteration before every episode."""
    policy, _ = long_lived(controller="mlp", feature_map="positive")
    run, state = policy._compiled._run, policy.state_dict()
    maps = {name: part.clone() for name, part in state.items() if ".features." in name}
    assert maps
    for _ in range(3):
        policy.load_state_dict(maps, strict=False)
        np.testing.assert_array_equal(policy.act(observation(3)), decided(policy, 3))
        assert policy._compiled._run is run
    policy.load_state_dict({name: 2 * part for name, part in maps.items()}, strict=False)
    np.testing.assert_array_equal(policy.act(observation(3)), decided(policy, 3))
    assert policy._compiled._run is not run


def test_pytorch_holds_no_trace_for_good():
    """What it compiles for `torch.jit.trace` stays as long as the process."""
    held = torch.jit._state._python_cu
    before = len(held.get_functions())
    policy, _ = long_lived(controller="mlp")
    assert is_traced(policy)
    assert len(held.get_functions()) == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        torch.jit.trace(torch.neg, (torch.ones(2),))
    assert len(held.get_functions()) > before  # this is where it would be


def test_hooks_are_called():
    policy, _ = long_lived(controller="mlp")
    calls = []
    policy.controller.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(2 * AFTER):
        policy.act(observation(0))
    assert len(calls) == 2 * AFTER


def test_parts_of_others_are_not_traced():
    policy = make(controller="mlp")

    class Turns(nn.Module):
        """Does another thing at every other call."""

        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x.new_full((len(x), 101), float(self.calls))

    policy.controller = Turns()
    for _ in range(2 * AFTER):
        policy.act(observation(0))
    assert policy.controller.calls == 2 * AFTER
    assert not is_traced(policy)


def test_a_counter_sees_the_components():
    policy, fresh = long_lived(controller="mlp")
    counters = OpCounter(), OpCounter()
    for one, counter in zip((policy, fresh), counters, strict=True):
        with torch.no_grad(), counter:
            one.act(observation(0))
    assert counters[0].by_component == counters[1].by_component
    assert counters[0].by_component["score"] > 0
    assert is_traced(policy)
    with watched():
        np.testing.assert_array_equal(policy.act(observation(1)), decided(policy, 1))
