"""Episodes without physics, and the comparison of memories on them."""

import json
import math

import pytest
import torch

from experiments.felt_ground import felt_memories, felt_networks, felt_patches
from experiments.felt_ground.felt_memories import LINEAR, beaten, candidates, compared, worlds
from experiments.felt_ground.worlds import ASKED, MISSED, World, draw
from policies.felt_ground.memories import felt_memory
from policies.felt_ground.patches import PatchKeys


def episodes(world, count=400, seed=0):
    return draw(world, count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["kinds 8, d 64", "conjunctions 4 x 4", "smooth, 3 factors"])
def test_labels_are_fair_and_questions_are_not_samples(name):
    """Kinds and labels are independent: their number varies from episode to episode."""
    world, _ = worlds()[name]
    drawn = episodes(world)
    assert drawn.keys.shape == (400, world.count, world.dim)
    assert drawn.truth.shape == (400, ASKED)
    assert drawn.keys.norm(dim=-1).sub(1).abs().max() < 1e-5
    assert drawn.truth.mean().abs() < 0.15
    assert drawn.values.mean(1).std() > 0.15
    again = episodes(world)
    assert torch.equal(drawn.keys, again.keys)
    assert not torch.isin(drawn.queries[0], drawn.keys[0]).all(-1).any()


def test_of_a_pair_neither_part_tells():
    """Labels of the kinds of one colour agree no more often than by chance, 1/2."""
    world = World(16, noise=0.0, pairs=True, samples=6)
    drawn = episodes(world)
    half = world.dim // 2
    keys = drawn.keys[..., :half] * math.sqrt(2)
    same_colour = (keys @ keys.mT > 0.999) & (drawn.keys @ drawn.keys.mT < 0.999)
    agree = (drawn.values * drawn.values.mT)[same_colour].mean()
    assert abs(float(agree)) < 0.03
    same_kind = drawn.keys @ drawn.keys.mT > 0.999
    same_kind &= ~torch.eye(world.count, dtype=torch.bool)
    agree = (drawn.values * drawn.values.mT)[same_kind].mean()
    assert float(agree) == pytest.approx((1 - 2 * MISSED) ** 2, abs=0.02)


def test_changed_labels_are_those_that_are_asked():
    drawn = episodes(World(4, noise=0.0, samples=4, later=4))
    cosines = drawn.queries @ drawn.keys.mT
    same = (cosines > 0.999) * drawn.truth.unsqueeze(-1) * drawn.values.mT
    early, late = same.split([16, 16], -1)
    assert abs(float(early[early != 0].mean())) < 0.1
    assert float(late[late != 0].mean()) > 0.9


@pytest.mark.parametrize("name", ["kinds 64, d 64", "labels change", "smooth, 6 factors"])
def test_no_memory_carries_more_than_its_numbers(name):
    world, budgets = worlds()[name]
    for budget in budgets:
        for label, configs in candidates(world, budget).items():
            assert configs, label
            if label.endswith(("all samples", "32 prototypes")):
                continue
            sizes = [felt_memory(config, world.dim).numbers for config in configs[::9]]
            assert max(sizes) <= budget, label


@pytest.mark.records
def test_more_kinds_than_prototypes_are_for_linear_attention():
    """The record's claim in one batch: its rivals, at 256 numbers, are below it."""
    world, _ = worlds()["kinds 64, d 16"]
    wanted = {"linear, delta", "leader", "least squares", "grid", "exact, all samples"}
    rows = compared("kinds 64, d 16", world, 256, 0, 1, {}, wanted.__contains__)
    assert beaten(rows) == dict.fromkeys(("leader", "least squares", "grid"), True)
    right = {row["memory"]: row["right"] for row in rows}
    assert right[LINEAR] > 0.8
    assert right["exact, all samples"] > 0.93


def test_networks_are_trained_saved_and_compared(tmp_path):
    folder = tmp_path / "networks"
    assert felt_networks.main(["--quick", "--out", str(folder)]) == 0
    facts = json.loads((folder / "felt_networks.json").read_text())["results"]
    assert set(facts) == {"gru", "transformer"}
    drawn = episodes(World(4), 3)
    for kind in facts:
        memory = felt_networks.load(kind, str(folder))
        state = memory.write(memory.initial_state(3), drawn.keys, drawn.values)
        times = torch.full((ASKED,), drawn.keys.shape[1])
        odds = memory.logits(drawn.keys, drawn.values, times, drawn.queries)
        read = memory.read(state, drawn.queries).squeeze(-1)
        torch.testing.assert_close(read, (odds / 2).tanh(), rtol=1e-4, atol=1e-5)


def test_a_missing_network_is_named(tmp_path, capsys):
    assert felt_memories.main(["--quick", "--networks", str(tmp_path)]) == 2
    assert "--networks needs" in capsys.readouterr().err


@pytest.mark.records
def test_keys_of_patches_are_learned_through_both_memories():
    """20 steps are enough to beat the mean colour on textures never seen."""
    generator = torch.Generator().manual_seed(0)
    tuning = felt_patches.draw(felt_patches.textures(96, 0), 32, generator)
    tests = felt_patches.draw(felt_patches.textures(24, 9), 64, generator)
    right = {}
    for name, config in felt_patches.TRAINED_BY.items():
        keys, _ = felt_patches.learned(config, 20, 0)
        (row,) = (
            r for r in felt_patches.judged(name, keys, tuning, tests) if r["memory"] == "exact"
        )
        right[name] = row["right"]
    colour = felt_patches.judged("", felt_patches.mean_colour, tuning, tests)
    assert min(right.values()) > max(row["right"] for row in colour) + 0.03


def test_keys_of_patches_are_unit_vectors_of_any_place():
    keys = PatchKeys(5)
    generator = torch.Generator().manual_seed(0)
    one = felt_patches.textures(1, 3)
    patches = felt_patches.cut(one, torch.zeros(2, 40, dtype=torch.long), generator)
    found = keys(patches)
    assert found.shape == (2, 40, 5)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(2, 40))
    others = felt_patches.cut(felt_patches.textures(40, 4), torch.arange(40), generator)
    assert found[0].var(0).sum() < 0.2 * keys(others).var(0).sum()
