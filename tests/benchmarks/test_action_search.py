"""The benchmark of searches runs, and its errors measure what they say."""

import torch

from experiments.robots import action_search


def test_it_prints_a_row_for_each_search(capsys):
    assert action_search.main(["--quick"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row[:40].strip() for row in rows[1:]] == [
        "autoregressive",
        "joint, langevin",
        "joint, derivative-free",
        "joint, chain negatives, langevin",
        "joint, chain negatives, derivative-free",
        "explicit",
    ]


def test_errors_are_distances_to_the_nearer_right_action():
    weights = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    context = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    for right in action_search.right_actions(context, weights):
        assert action_search.errors(right, context, weights)["all"] == 0
    first, second = action_search.right_actions(context, weights)
    found = action_search.errors((first + second) / 2, context, weights)
    assert found["smooth"] == found["constant"] == 0
    torch.testing.assert_close(found["two values"], 50 * (0.6 + 0.3) / 2)
