"""Decisions of long-lived policies that remember are the same to the bit, whatever they see."""

import numpy as np
import pytest
import torch

from policies.common import compiled
from tests.policies.cases import make, observation
from tests.policies.walks import ARMS, build, walked

AFTER = 3
NOT_ALIKE = {"unpooled delta"}
PLACES = {**ARMS, "unpooled delta": {"rule": "delta"}}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(compiled, "AFTER", AFTER)


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
    policy.reset()
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
    """An observation in which rows of the pictures, by default all, show nothing."""
    changed = {key: part.copy() for key, part in seen.items()}
    for part in changed.values():
        if part.ndim > 1:
            part[..., rows, :] = 5.0
    return changed


def stony(walk):
    """A walk with pictures in which much, or all, is missing, and a second one that begins with
    such a picture. How many pixels there are to remember is different in each."""
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


@pytest.mark.parametrize("arm", [arm for arm in PLACES if arm != "none"])
def test_memories_of_places(stones, walk, arm):
    check(build(stones, **PLACES[arm]), stony(walk), arm not in NOT_ALIKE)


@pytest.mark.parametrize("arm", [{"num_features": 100, "width_m": 0.06}, {"memory": "grid"}])
def test_memories_of_paths_that_turn(turning, arm):
    check(build(turning, **arm), stony(walked(turning)))


def test_nothing_is_carried_over_a_reset(stones, walk):
    """As after decisions that were traced."""
    policy, seen = build(stones), walk[0][:5]
    first = acted(policy, seen)[0]
    for _ in range(2):
        np.testing.assert_array_equal(acted(policy, seen)[0], first)
    policy.reset()
    assert policy.carried == 0


def test_growing_memories_are_traced_once(stones, walk):
    policy = build(stones, memory="exact", exact_s=None)
    seen = walk[0][:5]
    acted(policy, [*seen, *seen])
    run = policy._compiled._run
    assert run is not None
    carried = []
    for one in seen:
        policy.act(one)
        carried.append(policy.carried)
    assert policy._compiled._run is run
    assert carried == sorted(set(carried))
