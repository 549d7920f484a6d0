"""The test behind the verdict: how often it is wrong, against what it promises."""

from itertools import product

import numpy as np
import pytest

from training.interventions.verdict import (
    FALSE_ALARMS,
    Evidence,
    chance,
    corrected,
    decide,
    interval,
)

RNG = np.random.default_rng(0)


def evidence(*losses, to_lose=1.0):
    found = [np.asarray(lost, float) for lost in losses]
    chances = corrected([chance(lost) for lost in found])
    return [Evidence(f"test {i}", *each) for i, each in
            enumerate(zip(found, [to_lose] * len(found), chances, strict=True))]  # fmt: skip


def test_a_chance_is_the_share_of_signs_that_lose_as_much():
    lost = RNG.normal(0.3, 1, 9)
    sums = [np.dot(signs, lost) for signs in product((-1, 1), repeat=9)]
    assert chance(lost) == np.mean(np.array(sums) >= lost.sum() - 1e-12)
    assert chance(np.array([2.0, 1.0, 3.0, 0.0])) == 1 / 8
    assert chance(np.zeros(5)) == 1.0
    assert chance(-np.ones(4)) == 1.0


def test_a_chance_of_many_scenes_is_near_the_exact_one():
    """One loses as many as 14 of 20 with 0.0577 (binomial); 50,000 draws err by 0.001."""
    lost = np.array([1.0] * 14 + [-1.0] * 6)
    assert chance(lost) == pytest.approx(0.0577, abs=0.004)


def test_holm_against_a_worked_example():
    """Of 0.01, 0.04, 0.03 and 0.005: 4 x 0.005, 3 x 0.01, 2 x 0.03, and no less than that."""
    assert corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert corrected([1.0, 0.04, 1.0]) == [1.0, 0.04, 1.0]
    assert corrected([]) == []


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "laplace"])
def test_false_alarms_are_as_rare_as_stated(draw):
    """Differences of outcomes that are alike, four tests of one own outcome; a share of 1,000 lies
    above 7 % once in 500 where 5 % is true."""
    alarms = 0
    for _ in range(1000):
        own, *others = getattr(RNG, draw)(size=(5, 9))
        alarms += decide(evidence(*(own - other for other in others)), 9, 9, 0.2).looks is True
    assert alarms / 1000 < FALSE_ALARMS + 0.02


def test_a_loss_that_matters_is_rarely_called_none():
    """In a fifth of the scenes all is lost, in the others nothing; the binomial chance that 20
    scenes hold none is 1.2 %, and with a single one the verdict is open."""
    wrong = [
        decide(evidence(RNG.random(20) < 0.2), 20, 20, smallest_loss=0.2).looks is False
        for _ in range(1000)
    ]
    assert np.mean(wrong) < 0.025
    one = np.eye(20)[0]
    assert decide(evidence(one), 20, 20, 0.2).looks is None
    assert decide(evidence(np.zeros(20)), 20, 20, 0.2).looks is False
    assert decide(evidence(np.zeros(10)), 10, 10, 0.2).looks is None


def test_intervals_of_what_happens_or_does_not():
    """Bonett and Price add one scene to either side: of 20 that all lose, 21 to 1 of 22 (where
    they take the normal's quantile, here is Student's)."""
    low, high = interval(np.ones(20), binary=True)
    assert (low, high) == (pytest.approx(20 / 22 - 2.0796 * 0.4264 / 22**0.5, abs=1e-3), 1.0)
    assert interval(np.zeros(2000), binary=True) == pytest.approx((-0.0014, 0.0014), abs=2e-4)
    held = 0
    for _ in range(400):
        own, other = RNG.random(20) < 0.9, RNG.random(20) < 0.6
        low, high = interval(own * 1.0 - other, binary=True)
        held += low <= 0.3 <= high
    assert held / 400 > 0.92
    assert interval(np.ones(1)) is None


def test_a_verdict_says_what_it_rests_on():
    lost = RNG.normal(0.5, 0.1, 20)
    found = decide(evidence(np.zeros(20), lost), 20, 20, 0.2)
    assert (found.looks, found.reason.partition("(")[0]) == (True, "it loses test 1 ")
    assert decide(evidence(-lost), 20, 20, 0.2).reason.endswith("it gains without them")
    assert decide([], 20, 20, 0.2).looks is None
    unclear = decide(evidence(RNG.normal(0, 1, 20)), 20, 20, 0.2)
    assert unclear.looks is None
    assert "more episodes would decide" in unclear.reason
    small = decide(evidence(RNG.normal(0, 0.05, 40)), 40, 40, 0.2)
    assert small.looks is False
