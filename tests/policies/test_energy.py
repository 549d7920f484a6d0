"""Energy heads: what InfoNCE is, late fusion, and what they learn where regression averages."""

import math

import pytest
import torch
from torch import Tensor

from policies.vision_performer.action_search import autoregressive, langevin, stratified, uniform
from policies.vision_performer.energy import (
    AutoregressiveEnergy,
    JointEnergy,
    Regression,
    blurred,
    info_nce,
)
from tests.policies.vision_cases import generator

CONTEXT = 3


def test_info_nce_is_the_cross_entropy_to_the_first():
    energies = torch.tensor([[1.0, 2.0, 0.0], [0.0, 5.0, 5.0]])
    weights = (-energies).exp()
    expected = -(weights[:, 0] / weights.sum(-1)).log().mean()
    torch.testing.assert_close(info_nce(energies), expected)
    assert float(info_nce(torch.zeros(4, 65))) == pytest.approx(math.log(65))
    huge = torch.tensor([[1e4, -1e4]])
    assert float(info_nce(huge)) == pytest.approx(2e4)


def test_each_dimension_sees_only_those_before_it():
    head = AutoregressiveEnergy(CONTEXT, 4, (8, 8), 16, 0.0, generator())
    context, actions = torch.randn(2, CONTEXT, generator=generator()), torch.zeros(2, 4)
    candidates = uniform((4, 2, 5), generator(), context)
    part = head.context_part(context)
    before = head.energies(part, actions, candidates)
    for changed in range(4):
        other = actions.clone()
        other[:, changed] = 0.7
        differs = (head.energies(part, other, candidates) != before).flatten(1).any(-1)
        assert differs.tolist() == [i > changed for i in range(4)]


def test_training_and_search_see_the_same_energies():
    head = AutoregressiveEnergy(CONTEXT, 4, (8, 8), 16, 0.0, generator())
    with torch.no_grad():
        for bias in head.biases:
            bias.normal_(generator=generator(1))
    context = torch.randn(2, CONTEXT, generator=generator())
    actions = uniform((2, 4), generator(), context)
    candidates = uniform((4, 2, 5), generator(), context)
    part = head.context_part(context)
    together = head.energies(part, actions, candidates)
    for i in range(4):
        one = head.energy(i, part, actions[:, :i], candidates[i])
        torch.testing.assert_close(one, together[i])


def test_the_joint_energy_with_a_chain_penalises_steep_slopes():
    plain = JointEnergy(CONTEXT, 2, (16,), 8, 0.0, 0, generator())
    chained = JointEnergy(CONTEXT, 2, (16,), 8, 0.0, 2, generator())
    with torch.no_grad():
        for head in (plain, chained):
            head.candidate.mul_(100)
    context, actions = torch.randn(4, CONTEXT, generator=generator()), torch.zeros(4, 2)
    losses = [float(head.loss(context, actions, generator()).detach()) for head in (plain, chained)]
    assert losses[1] > losses[0] + 100


def test_noise_on_actions_is_gaussian_and_from_the_generator():
    actions = torch.full((1000, 5), 0.3)
    noisy = blurred(actions, 0.02, generator())
    assert float((noisy - 0.3).std()) == pytest.approx(0.02, rel=0.05)
    assert float(noisy.mean()) == pytest.approx(0.3, abs=0.002)
    assert torch.equal(blurred(actions, 0.02, generator()), noisy)
    assert blurred(actions, 0.0, generator()) is actions


def demonstrations(count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """A smooth dimension, a constant, two valid values, and one that goes with the choice."""
    context = torch.randn(count, CONTEXT, generator=source)
    smooth = 0.8 * torch.tanh(context[:, 0] + 0.5 * context[:, 1] * context[:, 2])
    side = torch.where(torch.rand(count, generator=source) < 0.5, -1.0, 1.0)
    parts = (smooth, torch.zeros(count), 0.6 * side, 0.3 * side + 0.2 * smooth)
    return context, torch.stack(parts, -1)


def errors(actions: Tensor, context: Tensor) -> Tensor:
    """Mean distances to the nearest valid action, in percent of the range, a dimension."""
    smooth = 0.8 * torch.tanh(context[:, 0] + 0.5 * context[:, 1] * context[:, 2])
    valid = []
    for side in (-1.0, 1.0):
        sides = torch.full_like(smooth, side)
        parts = (smooth, 0 * smooth, 0.6 * sides, 0.3 * sides + 0.2 * smooth)
        valid.append((actions - torch.stack(parts, -1)).abs())
    nearer = (valid[0].sum(-1) < valid[1].sum(-1)).unsqueeze(-1)
    return 50 * torch.where(nearer, *valid).mean(0)


def train(head: torch.nn.Module, steps: int, rate: float = 1e-2) -> None:
    """On the context itself, without an encoder."""
    source = generator(1)
    optimiser = torch.optim.Adam(head.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        context, actions = demonstrations(128, source)
        optimiser.zero_grad()
        head.loss(context, actions, source).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def autoregressive_errors(steps: int, hidden: tuple[int, ...]) -> Tensor:
    head = AutoregressiveEnergy(CONTEXT, 4, hidden, 32, 0.005, generator())
    train(head, steps)
    context, _ = demonstrations(200, generator(2))
    with torch.no_grad():
        part = head.context_part(context)
        found = autoregressive(
            lambda i, chosen, values: head.energy(i, part, chosen, values),
            4,
            lambda: stratified((200, 128), generator(3), context),
            2,
            0.05,
            0.25,
            generator(3),
        )
    return errors(found, context)


def test_autoregressive_energies_choose_where_regression_averages():
    implicit = autoregressive_errors(150, (32, 32))
    head = Regression(CONTEXT, 4, (64, 64), generator())
    train(head, 400, 3e-3)
    context, _ = demonstrations(200, generator(2))
    explicit = errors(head(context).detach(), context)
    assert implicit[1] < 0.3  # the constant
    assert implicit[2] < 0.5  # one of two values, not their mean
    assert implicit[3] < 1.0  # the value that goes with the one chosen
    assert implicit[0] < 4.0
    assert explicit[0] < 3.0  # regression does learn what is a function
    assert explicit[2] > 20  # and answers with the mean of two valid values, 0.6 from either


@pytest.mark.slow
def test_autoregressive_energies_are_precise_within_a_minute():
    """The constant too: without noise on the actions its valley is too narrow to be found."""
    found = autoregressive_errors(1000, (64, 64))
    assert (found < torch.tensor([0.5, 0.1, 0.1, 0.3])).all(), found


def test_a_joint_energy_finds_one_of_two_values_by_langevin():
    head = JointEnergy(CONTEXT, 4, (64, 64), 32, 0.005, 0, generator())
    train(head, 250, 4e-3)
    context, _ = demonstrations(100, generator(2))
    with torch.no_grad():
        part = head.context_part(context)
    start = uniform((100, 64, 4), generator(3), context)
    found = langevin(lambda a: head.energy(part, a), start, 30, 0.1, 1e-3, generator(3))
    distances = errors(found, context)
    assert distances[2] < 10
    assert distances.max() < 15
