"""Decisions of compiled policies are the same to the bit, for any observation and after any
change."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from attention.components import watched
from policies import compile_act
from policies.common import compiled
from tests.policies import vision_cases
from tests.policies.cases import batch, make, observation
from tests.policies.walks import ARMS, build, walked
from training.analysis.op_counter import OpCounter

AFTER = 3
NOT_ALIKE = {"unpooled delta"}
PLACES = {**ARMS, "unpooled delta": {"rule": "delta"}}


@pytest.fixture(autouse=True)
def many_traces(monkeypatch):
    monkeypatch.setattr(compiled, "MOST_TRACES", 10**9)


def long_lived(**settings):
    """A policy that has taken decisions enough, and a copy that has taken none."""
    policy = compile_act(make(**settings), AFTER)
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


def test_statistics_that_are_written_again_are_read_without_tracing_again():
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


def test_maps_that_are_written_again_are_read_without_tracing_again():
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


def test_without_the_option_nothing_is_traced(monkeypatch):
    eager = make(controller="mlp")
    monkeypatch.setenv("FOVEATE_COMPILE_ACT", "0")
    off, _ = long_lived(controller="mlp")
    for policy in (eager, off):
        for _ in range(2 * AFTER):
            policy.act(observation(0))
        assert not is_traced(policy)
    assert compile_act(abs) is abs, "a policy that does not offer it"


def fails(*_, **__):
    raise RuntimeError("no tracer here")


@pytest.mark.parametrize(
    ("place", "name", "value", "why"),
    [
        (torch.jit, "trace", fails, "tracing raised RuntimeError: no tracer here"),
        (torch.jit, "trace", lambda *_, **__: lambda *_: (torch.ones(1, 9),), "gave other numbers"),
    ],
)
def test_decisions_stay_eager_with_one_warning(monkeypatch, place, name, value, why):
    monkeypatch.setattr(place, name, value)
    policy = compile_act(make(controller="mlp"), AFTER)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for seed in range(3 * AFTER):
            action = policy.act(observation(seed))
            np.testing.assert_array_equal(action, decided(policy, seed))
    (one,) = warned
    assert re.search(f"compile_act: decisions stay eager, because .*{why}", str(one.message))
    assert not is_traced(policy)


def test_hooks_are_called():
    policy, _ = long_lived(controller="mlp")
    calls = []
    policy.controller.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(2 * AFTER):
        policy.act(observation(0))
    assert len(calls) == 2 * AFTER


def test_parts_of_others_are_not_traced():
    policy = compile_act(make(controller="mlp"), AFTER)

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


def written(policy, walk):
    """Actions as the policy's own methods give them, without `act`; None in a walk: another one
    begins."""
    found, memory = [], None
    with torch.inference_mode():
        for seen in walk:
            if seen is None:
                memory = None
                continue
            parts = {key: torch.from_numpy(part)[None] for key, part in seen.items()}
            decision, memory = policy.decided(parts, memory)
            found.append(decision.action()[0].numpy())
    return found


def acted(policy, walk):
    """Actions, and whether each was traced."""
    found, traced = [], []
    compile_act(policy, AFTER).reset()
    for seen in walk:
        if seen is None:
            policy.reset()
            continue
        traced.append(policy._compiled._run is not None and policy._memory is not None)
        found.append(policy.act(seen))
    return found, traced


def check(policy, walk, is_traced=True):
    found, traced = acted(policy, walk)
    np.testing.assert_array_equal(found, written(policy, walk))
    assert any(traced) == is_traced
    assert traced[-1] == is_traced  # nothing that was seen took it back


@pytest.mark.parametrize(
    "settings",
    [
        {"controller": "gru"},
        {"controller": "lstm", "feature_map": "angular_hybrid"},
        {"controller": "mlp", "last_action": True},
        {"controller": "gru", "last_action": True, "variant": "rank"},
    ],
)
def test_controllers_that_remember(settings):
    walk = [observation(seed) for seed in range(8)]
    check(make(**settings), [*walk, None, *walk])


def dark(seen, rows=slice(None)):
    """An observation in which rows of the images, by default all, show nothing."""
    changed = {key: part.copy() for key, part in seen.items()}
    for part in changed.values():
        if part.ndim > 1:
            part[..., rows, :] = 5.0
    return changed


def stony(walk):
    """A walk with images in which much, or all, is missing, and a second one that begins with
    such an image. How many pixels there are to remember is different in each."""
    seen = walk[0][:5]
    halves = [dark(one, rows) for one, rows in zip(seen, (slice(12), slice(8, 24)), strict=False)]
    return [
        *seen,
        dark(seen[4]),
        *halves,
        dark(seen[0]),
        *seen,
        None,
        dark(seen[1]),
        *seen,
        *halves,
    ]


@pytest.mark.parametrize(
    "arm", ["linear", "delta", "exact", "fitted grid", "learned keys", "gru", "last action", "vote",
            "random choice", "unpooled delta"]
)  # fmt: skip
def test_memories_of_places(stones, walk, arm):
    check(build(stones, **PLACES[arm]), stony(walk), arm not in NOT_ALIKE)


@pytest.mark.parametrize("arm", [{"num_features": 100, "width_m": 0.06}, {"memory": "grid"}])
def test_memories_of_paths_that_turn(turning, arm):
    check(build(turning, **arm), stony(walked(turning)))


def searched(policy, after=AFTER):
    """Actions of an episode of a Vision-Performer."""
    compile_act(policy, after).reset()
    return np.stack([policy.act(vision_cases.observation(seed)) for seed in range(2 * AFTER)])


def untraced(policy):
    """The actions of a copy that is never traced."""
    return searched(copy.deepcopy(policy), 10**9)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5, "rounds": 3},
        {"head": "joint", "optimiser": "derivative_free"},
        {"head": "explicit"},
    ],
)
def test_searches_for_an_action(settings):
    policy = vision_cases.make(**settings)
    searched(policy)
    assert is_traced(policy)
    np.testing.assert_array_equal(searched(policy), untraced(policy))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(-1.5)
    np.testing.assert_array_equal(searched(policy), untraced(policy))


def test_chains_along_gradients_are_not_traced():
    policy = vision_cases.make(head="joint", optimiser="langevin")
    actions = searched(policy)
    assert not is_traced(policy)
    np.testing.assert_array_equal(actions, untraced(policy))
