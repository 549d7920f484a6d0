"""The vote controller's geometry and its symmetries, and the action that votes give."""

import numpy as np
import pytest
import torch

from attention.tracing import for_onnx
from policies.footholds.head import OFFSETS, FootholdVotes
from policies.footholds.vote import template_votes
from tests.envs.episodes import expert
from tests.envs.episodes import make as make_env
from tests.policies.cases import FOOTHOLDS, observation, tensors
from tests.policies.cases import make as make_policy

OTHER_SIDE = [1, 0, 3, 2]  # FR, FL, RR, RL mirrored


@pytest.fixture
def controller():
    controller = make_policy(drawn=False).controller
    generator = torch.Generator().manual_seed(0)
    for parameter in controller.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return controller


def inputs(seed=0):
    depth, proprio = tensors(observation(seed))
    return (depth - 0.5) / 0.3, proprio


def votes_of(controller, image, proprio):
    return FootholdVotes(*controller(image.unsqueeze(2), proprio, normal=proprio))


def test_pixels_fall_where_the_stones_are(controller):
    """Pixels that see a stone's top, put on the ground by the controller, lie on the true stones;
    moved by 2 cm in any direction they fit worse."""
    points, on_top, truth = [], [], []
    with make_env(sensor_noise=0.0) as env:
        for seed in (1, 2):
            seen, _ = env.reset(seed=seed)
            for _ in range(40):
                seen, *_ = env.step(expert(env))
                state, stones = env.unwrapped._state, env.unwrapped._stones
                ahead, left = (part[0].numpy() for part in controller._ground(tensors(seen)[1]))
                yaw = state.euler_rad[2]
                x = state.position_m[0] + np.cos(yaw) * ahead - np.sin(yaw) * left
                y = state.position_m[1] + np.sin(yaw) * ahead + np.cos(yaw) * left
                points.append([x, y])
                on_top.append(seen["depth"].ravel() < state.position_m[2] - 0.06)
                truth.append(stones)

    def agreement(dx, dy):
        shares = []
        for (x, y), seen_on, stones in zip(points, on_top, truth, strict=True):
            on = (stones.margin_m(x + dx) > 0) & (np.abs(y + dy) < stones.width_m / 2)
            shares.append(np.mean(on == seen_on))
        return np.mean(shares)

    best = agreement(0, 0)
    assert best > 0.97
    assert all(agreement(*shift) < best for shift in [(0.02, 0), (-0.02, 0), (0, 0.02), (0, -0.02)])


def test_votes_move_with_the_foothold(controller):
    """The vote for a place does not depend on which offset it takes to get there."""
    with torch.no_grad():
        controller.prior.copy_(torch.tensor([0.0, -1.0]))
    image, proprio = inputs()
    moved = proprio.clone()
    moved[:, FOOTHOLDS][:, ::2] += 0.03
    here, there = (votes_of(controller, image, p).offsets for p in (proprio, moved))
    torch.testing.assert_close(there[..., :-3], here[..., 3:], atol=2e-3, rtol=0)
    assert here.std() > 0.1


def test_the_prior_prefers_small_offsets():
    controller = make_policy(drawn=False).controller
    votes = votes_of(controller, *inputs())
    assert (votes.offsets.argmax(-1) == 12).all()
    assert votes.speed == 0


def test_a_template_finds_the_stone():
    """A template that likes high ground, over a stone that begins 4 cm ahead of the foothold."""
    controller = make_policy(drawn=False).controller
    proprio = torch.zeros(1, 45)
    proprio[:, 9] = 0.45
    proprio[:, FOOTHOLDS] = torch.tensor([0.2, -0.12, 0.2, 0.12, -0.1, -0.12, -0.1, 0.12])
    with torch.no_grad():
        controller.template.fill_(-1.0)
        ahead, _ = controller._ground(proprio)
        image = torch.where(ahead > 0.24, -0.5, 1.0).view(1, 2, 24, 32)
        offsets = votes_of(controller, image, proprio).action()[0, :4]
    assert (offsets[:2] > 0.5).all()


class Votes(torch.nn.Module):
    def forward(self, *given):
        return template_votes(*given)


def test_votes_are_as_many_and_the_same_where_onnx_computes_them():
    generator = torch.Generator().manual_seed(0)
    shapes = (1, 4, 45), (21,), (2,), (25,)
    given = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    with for_onnx():
        exported = torch.export.export(Votes(), given)
    assert "conv1d" in str(exported.graph)
    torch.testing.assert_close(exported.module()(*given), template_votes(*given))


def test_a_mirrored_world_is_walked_mirrored(controller):
    image, proprio = inputs()
    mirrored = proprio.clone()
    mirrored[:, [0, 2, 7]] *= -1  # roll, yaw, lateral velocity
    footholds = proprio[:, FOOTHOLDS].view(4, 2)[OTHER_SIDE] * torch.tensor([1.0, -1.0])
    mirrored[:, FOOTHOLDS] = footholds.view(1, 8)
    one = votes_of(controller, image, proprio)
    other = votes_of(controller, image.flip(-2), mirrored)
    assert one.speed.abs() > 1e-3
    torch.testing.assert_close(other.speed, -one.speed, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other.offsets, one.offsets[:, OTHER_SIDE], atol=1e-3, rtol=1e-4)


def action(votes, speed=0.0):
    return FootholdVotes(votes, torch.tensor([speed])).action()[0]


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ({0: 50.0}, -1.0, -1.0), ({6: 50.0}, -0.5, -0.5), ({24: 50.0}, 1.0, 1.0),  # a clear winner
        ({12: 50.0, 13: 50.0}, 1 / 24, 1 / 24),  # neighbours refine it
        ({3: 5.0, 20: 4.9}, -1.0, -0.6),  # two answers are not averaged
    ],
)  # fmt: skip
def test_the_winner_and_its_neighbours_are_the_action(given, low, high):
    votes = torch.zeros(1, 4, OFFSETS)
    for place, value in given.items():
        votes[..., place] = value
    for speed, bounded in ((0.3, 0.3), (7.0, 1.0), (-7.0, -1.0)):
        found = action(votes, speed)
        assert ((low - 1e-5 <= found[:4]) & (found[:4] <= high + 1e-5)).all()
        assert not found[4:8].any()
        assert found[8] == pytest.approx(bounded)


def test_numbers_that_are_none_show():
    votes = torch.zeros(1, 4, OFFSETS)
    votes[0, 1, 3] = torch.nan
    assert action(votes)[1].isnan()
    assert action(torch.zeros(1, 4, OFFSETS), torch.nan)[8].isnan()
