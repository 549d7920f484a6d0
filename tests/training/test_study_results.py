"""The statistics of a study against values worked out by hand, and its sentences."""

import json

import numpy as np
import pytest

from training.plots import Curve
from training.study_config import StudyConfig
from training.study_results import (
    Scores,
    mean_interval,
    pareto_front,
    ratio_interval,
    read_scores,
    training_spread,
)
from training.study_summary import Row, Summary, headline


def generator(seed=1):
    return np.random.default_rng(seed)


def test_means_and_deviations_over_seeds():
    scores = Scores(np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]), None, 3)
    assert scores.reward == 3.0  # of 2 and 4
    assert scores.reward_sd == pytest.approx(2**0.5)
    assert scores.success == 0.5
    low, high = scores.success_interval  # Wilson, 3 of 6, by the formula
    assert (low, high) == pytest.approx((0.18762, 0.81238), abs=1e-5)
    assert Scores(np.ones((1, 5)), None, 5).reward_sd is None


def test_bootstrap_of_the_mean_has_the_exact_percentiles():
    """Two scenes of 0 and 1, one seed: the mean is 0, 0.5 or 1 with 1/4, 1/2, 1/4."""
    assert mean_interval(np.array([[0.0, 1.0]]), generator()) == (0.0, 1.0)
    assert mean_interval(np.array([[0.7, 0.7]]), generator()) == pytest.approx((0.7, 0.7))


def test_bootstrap_has_the_width_of_the_normal_interval():
    """400 scenes of one seed: 1.96 standard errors of the mean to each side, to within 5%."""
    rewards = generator(2).normal(3.0, 2.0, (1, 400))
    low, high = mean_interval(rewards, generator())
    half = 1.96 * rewards.std() / 20
    assert low == pytest.approx(rewards.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(rewards.mean() + half, abs=0.05 * half)


def test_the_seeds_are_a_level_of_their_own():
    """Seeds of 1 and 3 on scenes all alike: means of two drawn seeds are 1, 2 and 3."""
    rewards = np.repeat([[1.0], [3.0]], 50, axis=1)
    assert mean_interval(rewards, generator()) == pytest.approx((1.0, 3.0))


def test_scenes_are_drawn_for_both_arms_together():
    """Twice the reward on every scene is a ratio of exactly 2, however the scenes differ."""
    rewards = generator(3).uniform(0.1, 10, (1, 30))
    assert ratio_interval(2 * rewards, rewards, generator()) == pytest.approx((2.0, 2.0))
    other = generator(4).uniform(0.1, 10, (1, 30))
    low, high = ratio_interval(other, rewards, generator())
    assert high - low > 0.3


def test_seeds_are_drawn_for_each_arm_apart():
    """Arms with seeds of 1 and 3: ratios from 1/3 to 3, each with probability 1/16."""
    rewards = np.repeat([[1.0], [3.0]], 4, axis=1)
    assert ratio_interval(rewards, rewards, generator()) == pytest.approx((1 / 3, 3.0))


def test_the_bootstrap_follows_its_generator():
    rewards = generator(5).uniform(1, 2, (3, 20))
    assert mean_interval(rewards, generator(6)) == mean_interval(rewards, generator(6))
    assert mean_interval(rewards, generator(6)) != mean_interval(rewards, generator(7))


def test_no_ratio_to_a_reward_around_zero():
    assert ratio_interval(np.ones((1, 4)), np.array([[-1.0, 1.0, 1, 1]]), generator()) is None


def test_the_pareto_front():
    costs = {"a": 4, "b": 1, "c": 2, "d": 2, "e": 8}
    rewards = {"a": 3.0, "b": 1.0, "c": 2.0, "d": 1.5, "e": 3.0}
    assert pareto_front(costs, rewards) == ["b", "c", "a"]
    assert pareto_front({}, {}) == []


def test_training_curves_over_seeds():
    def curve(values):
        columns = {"iteration": np.arange(1.0, 1 + len(values)), "loss": np.array(values)}
        return Curve("run", columns)

    spread = training_spread([curve([1.0, 2.0, np.nan, 4.0]), curve([3.0, 2.0, 5.0])], "loss")
    assert spread.x.tolist() == [1, 2]
    assert spread.mean.tolist() == [2, 2]
    assert spread.high.tolist() == pytest.approx([2 + 2**0.5, 2])
    assert training_spread([curve([np.nan])], "loss") is None
    assert training_spread([], "loss") is None


def test_scores_of_evaluations(tmp_path):
    def write(name, rewards, rate, **info):
        records = [{"seed": i, "reward": r, "steps": 3, **info} for i, r in enumerate(rewards)]
        entry = {"records": records, "success_rate": rate, "episodes": len(rewards)}
        (tmp_path / name).write_text(json.dumps(entry))
        return tmp_path / name

    paths = [write("a.json", [1.0, 2.0, 3.0], 2 / 3), write("b.json", [2.0, 2.0, 2.0], 1 / 3)]
    scores = read_scores([*paths, tmp_path / "absent.json"])
    assert scores.rewards.tolist() == [[1, 2, 3], [2, 2, 2]]
    assert scores.successes == 3
    assert scores.in_bowls is None
    swept = read_scores([write("c.json", [1.0], 0.0, in_bowls=0.25)])
    assert swept.in_bowls.tolist() == [[0.25]]
    assert read_scores([tmp_path / "absent.json"]) is None


def row(name, reward, ratio=None, fewer=None, attention=100, successes=2):
    scores = Scores(np.full((2, 2), reward), None, successes)
    interval = None if ratio is None else (ratio - 0.01, ratio + 0.01)
    cost = {"attention": attention, "total": 1000}
    return Row(name, scores, (reward, reward), ratio, interval, cost, fewer)


def sentences(*rows, oracle=None, **settings):
    arms = [{"name": one.name, "control": one.name == "none"} for one in rows]
    study = StudyConfig(
        title="T",
        stages=({"trainer": "es", "config": "x"},),
        arms=arms,
        baseline="base",
        **settings,
    )
    references = {} if oracle is None else {"oracle": row("oracle", 5.0, successes=oracle)}
    return headline(study, Summary({one.name: one for one in rows}, references, {}, {}))


def test_the_headline_is_made_from_the_figures():
    base, angular = row("base", 4.0), row("angular", 3.96, 0.99, 3.5, successes=3)
    cheap, weak = row("cheap", 3.95, 0.985, 9.0), row("weak", 2.0, 0.5, 50.0)
    found = sentences(base, angular, cheap, weak, oracle=4, headline="angular")
    assert found == [
        "angular earns 0.990 times (95 % interval 0.980 to 1.000) the reward of base, for 3.5 "
        "times fewer attention FLOPs a step (2 training seeds, 2 scenes each).",
        "It succeeds in 75.0 % of the episodes (30.1 to 95.4 %), the scripted oracle, which knows "
        "the scene, in 100.0 %.",
        "Cheapest within 2 % of the baseline's reward: cheap earns 0.985 times (95 % interval "
        "0.975 to 0.995) the reward of base, for 9 times fewer attention FLOPs a step (2 training "
        "seeds, 2 scenes each).",
    ]


def test_the_headline_does_not_hide_a_defeat():
    base, weak = row("base", 4.0), row("weak", 2.0, 0.5, 50.0)
    none = row("none", 4.4, 1.1, 300.0)
    found = sentences(base, weak, headline="weak")
    assert found[0].startswith("weak earns 0.500 times")
    assert found[-1].startswith("No kind of attention with fewer FLOPs than the baseline is within")
    found = sentences(base, weak, none)
    assert found[0].startswith("weak earns 0.500 times")
    assert found[-2].startswith("No kind of attention")
    assert found[-1] == (
        "The control none is within 2 % of the baseline's reward, at 1.100 times "
        "(95 % interval 1.090 to 1.110)."
    )


def test_the_headline_before_there_is_one():
    assert "Not enough is measured yet" in sentences(row("base", 4.0))[0]
    assert "a ratio to it says nothing" in sentences(row("base", 0.0), row("a", 1.0))[0]
