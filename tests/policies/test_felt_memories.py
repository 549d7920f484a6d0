"""Memories of what was felt: each against a slow reference, and the interface that all share."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import normalize
from torch.testing import assert_close

from policies.felt_ground.memories import felt_memory
from policies.felt_ground.memory_config import FeltMemoryConfig

D = 6
SETTINGS = {
    "trig delta": {"num_features": 64},
    "trig sum": {"num_features": 64, "rule": "sum"},
    "quadratic forgetting": {"feature_map": "quadratic", "forgetting": 0.9},
    "raw": {"feature_map": "raw"},
    "exact": {"kind": "exact", "capacity": 16},
    "nearest": {"kind": "nearest", "capacity": 16, "project": 4},
    "leader": {"kind": "leader", "capacity": 8},
    "least squares": {"kind": "least_squares", "feature_map": "raw"},
    "grid": {"kind": "grid", "directions": 3, "bins": 3, "cells": 27},
    "hashed grid": {"kind": "grid", "directions": 5, "cells": 64, "tables": 3},
    "gru": {"kind": "gru", "hidden": 8},
    "transformer": {"kind": "transformer", "hidden": 8, "capacity": 12},
    "none": {"kind": "none"},
}


def made(name, **options):
    torch.manual_seed(0)
    return felt_memory(FeltMemoryConfig(**{**SETTINGS[name], **options}), D)


def samples(count, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    keys = normalize(torch.randn(batch, count, D, generator=generator), dim=-1)
    return keys, torch.randn(batch, count, 1, generator=generator).sign()


def numbers_of(state):
    return sum(part[0].numel() for part in state)


@pytest.mark.parametrize("name", SETTINGS)
@torch.no_grad()
def test_all_share_the_interface(name):
    """Samples without weight leave no trace, a reset empties, and order of calls is no matter."""
    memory = made(name)
    keys, values = samples(7)
    queries, _ = samples(5, seed=1)
    empty = memory.initial_state(2)
    state = memory.write(empty, keys, values)
    read = memory.read(state, queries)
    assert read.shape == (2, 5, 1)
    assert read.isfinite().all()
    assert (read != 0).any() == (name != "none")
    if name not in ("gru", "transformer"):
        assert (memory.read(empty, queries) == 0).all()
    gates = torch.tensor([1.0, 0.0]).expand(2, 7, 2).flatten(1)
    wide = [part.repeat_interleave(2, 1) for part in (keys, values)]
    one_by_one = empty
    for i in range(14):
        parts = (part[:, i : i + 1] for part in wide)
        one_by_one = memory.write(one_by_one, *parts, gates=gates[:, i : i + 1])
    assert_close(memory.read(one_by_one, queries), read, rtol=1e-4, atol=1e-5)
    cleared = memory.reset(state, torch.tensor([True, False]))
    left = memory.read(cleared, queries)
    assert_close(left[1], read[1], rtol=0, atol=1e-6)
    assert_close(left[0], memory.read(empty, queries)[0], rtol=0, atol=1e-6)
    carried = numbers_of(state)
    if name in ("trig delta", "raw", "exact", "leader", "grid", "hashed grid", "gru", "none"):
        assert memory.numbers in (carried, carried - 1)  # a ring also counts


@torch.no_grad()
def test_exact_is_softmax_attention_over_the_newest():
    memory = made("exact", kappa=5.0, forgetting=0.8)
    keys, values = samples(23)
    queries, _ = samples(4, seed=1)
    found = memory.read(memory.write(memory.initial_state(2), keys, values), queries)
    kept, late = keys[:, -16:], torch.arange(15, -1, -1.0) * math.log(0.8)
    weights = (5 * queries @ kept.mT + late).softmax(-1)
    assert_close(found, weights @ values[:, -16:])
    nearest = made("nearest", project=None)
    state = nearest.write(nearest.initial_state(2), keys, values)
    best = (queries @ kept.mT).argmax(-1, keepdim=True)
    assert torch.equal(nearest.read(state, queries), values[:, -16:].gather(1, best))


@torch.no_grad()
def test_leader_forms_a_prototype_a_kind_and_averages_its_values():
    centres = torch.eye(D)[:3]
    keys = normalize(centres.repeat(4, 1) + 0.1, dim=-1).unsqueeze(0)
    values = torch.tensor([1.0, -1, 1, 1, -1, -1, 1, -1, 1, -1, -1, 1]).reshape(1, 12, 1)
    memory = made("leader")
    state = memory.write(memory.initial_state(1), keys, values)
    assert (state.counts > 0).sum() == 3
    expected = torch.tensor([0.5, -1.0, 0.5]).reshape(1, 3, 1)
    assert_close(memory.read(state, centres.unsqueeze(0)), expected)
    small = made("leader", capacity=1)
    state = small.write(small.initial_state(1), keys, values)
    assert_close(small.read(state, keys), values.mean().expand(1, 12, 1))


@torch.no_grad()
def test_recursive_least_squares_is_ridge_regression():
    memory = made("least squares", ridge=0.5, kappa=2.0)
    keys, values = samples(20)
    state = memory.write(memory.initial_state(2), keys, values)
    design = torch.cat((keys * math.sqrt(2.0), torch.ones(2, 20, 1)), -1).double()
    gram = design.mT @ design + 0.5 * torch.eye(D + 1)
    assert_close(state.weights, torch.linalg.solve(gram, design.mT @ values.double()).squeeze(-1))
    assert memory.numbers == 7 + 28


@torch.no_grad()
def test_a_grid_averages_in_cells_and_hashed_cells_seldom_meet():
    memory = made("grid")
    keys, values = samples(200, batch=1)
    state = memory.write(memory.initial_state(1), keys, values)
    cells = memory._cells(keys)
    assert cells.unique().numel() > 20
    for cell in cells.unique():
        inside = cells[0, :, 0] == cell
        asked = keys[:, inside]
        expected = values[:, inside].mean().expand(1, int(inside.sum()), 1)
        assert_close(memory.read(state, asked), expected)
    hashed = made("hashed grid", tables=1, cells=1 << 16, directions=6, bins=8)
    exact = made("grid", cells=1 << 18, directions=6, bins=8)
    many = samples(500, batch=1)[0]
    apart = [grid._cells(many).unique().numel() for grid in (hashed, exact)]
    assert 0.98 * apart[1] <= apart[0] <= apart[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"project": 7}, "project must be at most 6, the dimension of keys, got 7"),
        ({"kind": "grid", "directions": 7}, "directions must be at most 6, the dimension of keys"),
        ({"kind": "transformer", "hidden": 6}, "hidden must be a multiple of 4 .* got 6"),
        ({"feature_map": "cubic"}, "feature_map must be one of .*quadratic"),
        ({"kind": "tree"}, "kind"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises((ValueError, ValidationError), match=message):
        felt_memory(FeltMemoryConfig(**settings), D)
