"""From votes to an action."""

import torch

from policies.footholds.head import OFFSETS, FootholdVotes


def action(votes, speed=0.0):
    return FootholdVotes(votes, torch.tensor([speed])).action()[0]


def test_a_clear_winner_is_the_action():
    votes = torch.zeros(1, 4, OFFSETS)
    for leg, winner in enumerate((0, 6, 12, 24)):
        votes[0, leg, winner] = 50.0
    torch.testing.assert_close(
        action(votes, 0.3), torch.tensor([-1, -0.5, 0, 1, 0, 0, 0, 0, 0.3]), atol=1e-6, rtol=0
    )


def test_neighbours_refine_the_winner():
    votes = torch.full((1, 4, OFFSETS), -50.0)
    votes[..., 12] = 1.0
    votes[..., 13] = 1.0
    torch.testing.assert_close(action(votes)[:4], torch.full((4,), 1 / 24))


def test_two_answers_are_not_averaged():
    votes = torch.zeros(1, 4, OFFSETS)
    votes[..., 3], votes[..., 20] = 5.0, 4.9
    assert (action(votes)[:4] < -0.6).all()


def test_speed_is_bounded():
    votes = torch.zeros(1, 4, OFFSETS)
    assert action(votes, 7.0)[8] == 1
    assert action(votes, -7.0)[8] == -1


def test_numbers_that_are_none_show():
    votes = torch.zeros(1, 4, OFFSETS)
    votes[0, 1, 3] = torch.nan
    assert action(votes)[1].isnan()
    assert action(torch.zeros(1, 4, OFFSETS), torch.nan)[8].isnan()
