"""Which tokens attention keeps, by random features and exactly."""

import numpy as np
import pytest
import torch

from attention import ExactSoftmax
from policies.common.settings import EXACT
from policies.implicit_attention.selection import LearnedSelection
from tests.policies.cases import batch, make, observation


def tokens(policy, seeds):
    return policy.attended_tokens(batch(*(observation(seed) for seed in seeds)))


def with_the_same_parameters(**settings):
    """Selections by random features and by exact attention."""
    pair = [make(**settings), make(**{**settings, "feature_map": EXACT})]
    for hybrid, exact in zip(*(policy.parameters() for policy in pair), strict=True):
        assert torch.equal(hybrid, exact)
    return pair


@pytest.mark.parametrize("patch", [(4, 4), (1, 1)])
def test_the_angular_hybrid_keeps_what_exact_attention_keeps(patch):
    """With m = n = 8, over 8 draws of the projections; chance would be 0.5."""
    agree = []
    for draw in range(8):
        settings = {"patch": patch, "feature_map": "angular_hybrid", "feature_seed": draw}
        hybrid, exact = with_the_same_parameters(**settings)
        seen = tokens(hybrid, range(4))
        with torch.no_grad():
            gates = [policy.selection(seen) for policy in (hybrid, exact)]
        agree.append((gates[0] == gates[1]).float().mean().item())
    assert np.mean(agree) > 0.85
    assert min(agree) > 0.75


def test_scores_are_column_sums_of_the_kernel():
    policy = make(feature_map=EXACT)
    seen = tokens(policy, [0])
    query, key = policy.selection.project(seen)
    torch.testing.assert_close(query.norm(dim=-1), torch.ones(1, 96))
    torch.testing.assert_close(key.norm(dim=-1), torch.ones(1, 96))
    expected = (query @ key.mT).exp().sum(-2)
    torch.testing.assert_close(policy.selection.scores(seen), expected)


def test_learned_lengths_are_those_of_softmax_attention():
    """Weights of variance 1 whatever a token's length; q.k / sqrt(d); in proportion to the token,
    up to a length of which no exponential overflows."""
    policy = make(feature_map=EXACT, qk_lengths="learned")
    selection, seen = policy.selection, tokens(policy, [0])
    new = LearnedSelection(256, 4, ExactSoftmax(4), torch.Generator().manual_seed(0), unit=False)
    assert abs(new.query.std() - 1) < 0.1
    features, dim = selection.query.shape
    query, key = selection.project(seen)
    expected = (seen @ selection.query) @ (seen @ selection.key).mT / features / dim**0.5
    torch.testing.assert_close(query @ key.mT, expected)
    torch.testing.assert_close(selection.project(2 * seen)[0], 2 * query)
    far, _ = selection.project(1e6 * seen)
    torch.testing.assert_close(far.norm(dim=-1), torch.full((1, 96), 4.0))
    hybrid = make(qk_lengths="learned")
    with torch.no_grad():
        hybrid.selection.query.mul_(1e6)
        assert hybrid.selection.scores(seen).isfinite().all()


@pytest.mark.parametrize("unit", [False, True])
def test_opposed_keys_begin_at_what_is_least_like_the_rest(unit):
    """The token that differs from all others scores highest for any draw."""
    seen = torch.ones(1, 96, 29)
    seen[0, 40] = -1
    firsts = []
    for opposed in (True, False):
        drawn = [torch.Generator().manual_seed(seed) for seed in range(20)]
        made = [
            LearnedSelection(29, 4, ExactSoftmax(4), g, unit=unit, opposed=opposed) for g in drawn
        ]
        firsts.append([int(selection.best(selection.scores(seen))[0, 0]) for selection in made])
    assert firsts[0] == [40] * 20
    assert firsts[1].count(40) < 20


def test_the_gate_keeps_the_highest_scores():
    policy = make(keep=0.25)
    seen = tokens(policy, [0, 1])
    gate, scores = policy.selection(seen).detach().round(), policy.selection.scores(seen)
    assert (gate.sum(-1) == 24).all()
    lowest_kept = scores.masked_fill(gate == 0, torch.inf).amin(-1)
    highest_left = scores.masked_fill(gate == 1, -torch.inf).amax(-1)
    assert (lowest_kept >= highest_left).all()


def test_ties_keep_the_share():
    policy = make(keep=0.5)
    with torch.no_grad():
        policy.selection.query.zero_()
        gate = policy.selection(tokens(policy, [0]))
    assert gate.sum() == 48
