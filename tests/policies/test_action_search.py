"""Searches for the least energy, on energies whose least is known."""

import math

import pytest
import torch
from torch import Tensor

from policies.vision_performer.action_search import (
    autoregressive,
    derivative_free,
    langevin,
    langevin_chain,
    stratified,
    uniform,
)
from tests.policies.vision_cases import generator

LIKE = torch.zeros(1)
TARGET = torch.tensor([[0.3, -0.62], [0.9, 0.1]])


def bowl(candidates: Tensor) -> Tensor:
    """Least at TARGET, a batch of two actions of two numbers."""
    return 30 * (candidates - TARGET.unsqueeze(1)).square().sum(-1)


def test_derivative_free_finds_the_least_and_uses_every_round():
    start = uniform((2, 256, 2), generator(), LIKE)
    errors = [
        (derivative_free(bowl, start, rounds, 0.2, generator()) - TARGET).abs().max()
        for rounds in (1, 3, 6)
    ]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.01


def test_resampling_goes_where_energies_are_low():
    seen = []

    def two_wells(candidates: Tensor) -> Tensor:
        seen.append(candidates)
        return torch.where(candidates[..., 0] > 0, 0.0, 1.0)

    derivative_free(two_wells, uniform((1, 20000, 1), generator(), LIKE), 2, 1e-6, generator())
    share = float((seen[1] > 0).double().mean())
    assert share == pytest.approx(1 / (1 + torch.e**-1), abs=0.01)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_temperature_draws_a_well_and_takes_its_best(temperature):
    """Wells at +-0.5, the right one deeper by 1."""
    batch = 4000

    def two_wells(candidates: Tensor) -> Tensor:
        value = candidates[..., 0]
        return 100 * (value.abs() - 0.5).square() + (value < 0)

    start = torch.tensor([[-0.48], [0.48]]).expand(batch, -1, -1)
    start = start.repeat(1, 20, 1)  # 40 candidates
    found = derivative_free(two_wells, start, 3, 0.02, generator(), temperature)
    assert (found.abs() - 0.5).abs().max() < 0.02  # of the last two rounds, all near the drawn one
    assert (found.abs() - 0.5).abs().mean() < 0.004
    right = 1 / (1 + math.exp(-1 / temperature))
    assert float((found > 0).double().mean()) == pytest.approx(right, abs=0.025)


def test_autoregressive_search_follows_what_was_chosen():
    """Two wells a dimension; the second dimension's deeper one depends on the first's choice."""

    def energy(i: int, chosen: Tensor, values: Tensor) -> Tensor:
        if i == 0:
            depth = 0.5 * torch.tensor([[1.0], [-1.0]]) * values.sign()  # row 0: left is deeper
            return 100 * (values.abs() - 0.5).square() + depth
        return 100 * (values - 0.5 * chosen[:, :1] - 0.1).square()

    def first() -> Tensor:
        return stratified((2, 64), generator(), LIKE)

    found = autoregressive(energy, 2, first, 4, 0.05, 0.0, generator())
    expected = torch.tensor([[-0.5, -0.15], [0.5, 0.35]])
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("broken", [math.nan, -math.inf])
@pytest.mark.parametrize("round_", [0, 1, 2])
def test_an_energy_that_is_not_finite_makes_the_action_nan(round_, broken, temperature):
    """One candidate of the first scene, in one of three rounds; the other scene is untouched."""
    calls = []

    def breaking(candidates: Tensor) -> Tensor:
        energies = bowl(candidates)
        if len(calls) == round_:
            energies[0, 3] = broken
        calls.append(None)
        return energies

    start = uniform((2, 8, 2), generator(), LIKE)
    found = derivative_free(breaking, start, 3, 0.2, generator(), temperature)
    assert len(calls) == 3
    assert found[0].isnan().all()
    assert found[1].isfinite().all()


def test_forbidden_candidates_do_not_spoil_the_others():
    """An infinite energy is never the least, unless all are: then no action is sound."""

    def half(candidates: Tensor) -> Tensor:
        return bowl(candidates).masked_fill(candidates[..., 0] < 0, math.inf)

    found = derivative_free(half, uniform((2, 64, 2), generator(), LIKE), 3, 0.2, generator())
    assert (found[:, 0] >= 0).all()

    def nowhere(candidates: Tensor) -> Tensor:
        return torch.full_like(candidates[..., 0], math.inf)

    start = uniform((2, 8, 2), generator(), LIKE)
    assert derivative_free(nowhere, start, 2, 0.2, generator()).isnan().all()
    assert langevin(lambda a: a.sum(-1) * math.nan, start, 1, 0.1, 0.1, generator()).isnan().all()


def test_langevin_descends_and_shakes():
    start = uniform((2, 64, 2), generator(), LIKE)
    found = langevin(bowl, start, 50, 0.1, 1e-4, generator())
    assert (found - TARGET).abs().max() < 0.02
    with torch.no_grad():
        moved = langevin_chain(bowl, start, 50, generator())
    assert not moved.requires_grad
    assert bowl(moved).mean() < 0.1 * bowl(start).mean()
    flat = langevin_chain(lambda a: 0 * a.sum(-1), start, 1, generator(), 0.01)
    assert float((flat - start).std()) == pytest.approx(0.01, rel=0.1)  # noise of the step's size


def test_moves_are_bounded():
    start = uniform((2, 64, 2), generator(), LIKE)
    moved = langevin_chain(lambda a: 1e6 * a.sum(-1), start, 1, generator())
    assert float((moved - start).abs().max()) == pytest.approx(0.1)
    for steps in (1, 30):
        assert langevin_chain(lambda a: -9 * a.sum(-1), start, steps, generator()).max() <= 1


def test_stratified_numbers_cover_every_part():
    drawn = stratified((3, 10), generator(), LIKE)
    parts = ((drawn + 1) * 5).floor()
    assert torch.equal(parts, torch.arange(10.0).expand(3, -1))
    many = stratified((20000, 4), generator(), LIKE)
    within = ((many + 1) * 2).frac()
    assert float(within.mean()) == pytest.approx(0.5, abs=0.01)
