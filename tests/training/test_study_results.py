"""The statistics of a study against values worked out by hand, and its sentences."""

import json
from pathlib import Path

import numpy as np
import pytest

import envs
from training.analysis.intervals import (
    mean_interval,
    ratio_interval,
    seeds_interval,
    share_interval,
    t_quantile,
)
from training.compare.claims import at_ceiling, headline, of_controls
from training.compare.config import StudyConfig
from training.compare.results import (
    Results,
    Row,
    Scores,
    pareto_front,
    read_scores,
    training_spread,
)
from training.io.config import UserError
from training.io.metrics import Curve


def generator(seed=1):
    return np.random.default_rng(seed)


def test_means_and_deviations_over_seeds():
    successes = np.array([[1, 0, 0], [1, 1, 0]])
    scores = Scores(np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]), successes)
    assert scores.reward == 3.0  # of 2 and 4
    assert scores.reward_sd == pytest.approx(2**0.5)
    assert scores.success == 0.5
    assert Scores(np.ones((1, 5)), np.ones((1, 5))).reward_sd is None


def test_quantiles_of_student():
    """Of the usual tables, and those that the published pages were once written with."""
    found = [t_quantile(freedom) for freedom in (1, 2, 5, 30, 199)]
    assert found == pytest.approx([12.7062, 4.3027, 2.5706, 2.0423, 1.9720], rel=3e-5)
    integrated = {
        2: 4.302652728453, 2.5: 3.574654842299, 3: 3.182446305615, 10.7: 2.208537615239,
        49: 2.009575238132, 199: 1.971956548207, 1000: 1.962339095404, 100_000: 1.959989475455,
    }  # fmt: skip
    found = [t_quantile(freedom) for freedom in integrated]
    assert found == pytest.approx(list(integrated.values()), rel=1e-6)


def test_intervals_of_known_cases():
    """One seed: the usual interval over scenes. Scenes all alike: over seeds, t of two degrees
    times the standard error. Seeds all alike count once."""
    rewards = generator(2).normal(3.0, 2.0, (1, 31))
    half = 2.0423 * rewards.std(ddof=1) / 31**0.5
    expected = rewards.mean() - half, rewards.mean() + half
    assert mean_interval(rewards) == pytest.approx(expected, rel=1e-3)
    half = 4.3027 / 3**0.5
    alike = np.repeat([[1.0], [2.0], [3.0]], 50, axis=1)
    assert mean_interval(alike) == pytest.approx((2 - half, 2 + half), rel=1e-4)
    assert seeds_interval(alike[:, 0]) == pytest.approx((2 - half, 2 + half), rel=1e-4)
    assert seeds_interval(np.array([1.0])) is None
    assert mean_interval(np.repeat(rewards, 4, axis=0)) == pytest.approx(mean_interval(rewards))


def made(rng, seeds, scenes):
    """Rewards around 10 of two variants, with effects of seed, scene and both."""
    shared = rng.normal(0, 1, scenes)
    shapes = (seeds, 1), (seeds, scenes)
    return [10 + shared + rng.normal(0, 0.3, one) + rng.normal(0, 1, both)
            for one, both in (shapes, shapes)]  # fmt: skip


def test_intervals_cover_what_they_say():
    """Three seeds: at least 93 of 100, where a bootstrap of the seeds has 75."""
    rng, tries = generator(11), 400
    held = np.zeros(3)
    for _ in range(tries):
        ours, theirs = made(rng, 3, 40)
        truth = 0.8413  # of a success above one standard deviation below the mean
        successes = (ours > 10 - (1 + 0.3**2 + 1) ** 0.5).astype(float)
        intervals = mean_interval(ours), ratio_interval(ours, theirs), share_interval(successes)
        for i, ((low, high), value) in enumerate(zip(intervals, (10, 1, truth), strict=True)):
            held[i] += low <= value <= high
    assert (held / tries >= 0.93).all(), held / tries
    assert (held / tries <= 0.995).all(), held / tries


def test_ratios_of_known_cases():
    """Scenes are paired: twice the reward on every scene is a ratio of exactly 2, however they
    differ. Seeds are of both: of 3.9 to 4.1 each, the variance is of a difference of means of 2,
    t of 2 degrees. There is none to a reward around zero."""
    rewards = generator(3).uniform(0.1, 10, (1, 30))
    assert ratio_interval(2 * rewards, rewards) == pytest.approx((2.0, 2.0))
    low, high = ratio_interval(generator(4).uniform(0.1, 10, (1, 30)), rewards)
    assert high - low > 0.3
    alike = np.repeat([[3.9], [4.1]], 4, axis=1)
    half = 4.3027 * (2 * 0.02 / 2) ** 0.5 / 4
    assert ratio_interval(alike, alike) == pytest.approx((1 - half, 1 + half), rel=1e-3)
    assert ratio_interval(np.ones((1, 4)), np.array([[-1.0, 1.0, 1, 1]])) is None


def test_shares_stay_inside_and_have_a_width_at_the_ends():
    low, high = share_interval(np.ones((3, 200)))
    assert (low, high) == (pytest.approx(0.981, abs=1e-3), 1.0)  # Wilson, 200 of 200
    assert share_interval(np.zeros((3, 200)))[0] == 0.0
    few = np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]])
    low, high = share_interval(few)
    assert 0 < low < 0.125 < high < 1


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
    x, mean, _, high = spread
    assert x.tolist() == [1, 2]
    assert mean.tolist() == [2, 2]
    assert high.tolist() == pytest.approx([2 + 2**0.5, 2])
    assert training_spread([curve([np.nan])], "loss") is None
    assert training_spread([], "loss") is None


def test_scores_of_evaluations(tmp_path):
    def write(name, rewards, rate, env="", **info):
        records = [{"seed": i, "reward": r, "success": i < rate, **info}
                   for i, r in enumerate(rewards)]  # fmt: skip
        entry = {"env": env, "records": records}
        (tmp_path / name).write_text(json.dumps(entry))
        return tmp_path / name

    paths = [write("a.json", [1.0, 2.0, 3.0], 2), write("b.json", [2.0, 2.0, 2.0], 1)]
    scores = read_scores([*paths, tmp_path / "absent.json"], 3)
    assert scores.rewards.tolist() == [[1, 2, 3], [2, 2, 2]]
    assert scores.successes.tolist() == [[1, 1, 0], [1, 0, 0]]
    assert read_scores(paths, 2).rewards.tolist() == [[1, 2], [2, 2]]
    assert scores.measured is None
    swept = read_scores([write("c.json", [1.0], 0, envs.BIMANUAL_SWEEP, in_bowls=0.25)], 1)
    assert swept.measured.tolist() == [[0.25]]
    assert read_scores([tmp_path / "absent.json"], 1) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"records": 3}', "records = 3, but input should be a valid array"),
        ('{"records": [{"reward": NaN}]}', "records.0.reward = nan, but input should be"),
        ('{"records": []}', "holds 0 episodes of 0 scenes; it is damaged"),
        ("{", "is damaged, or no JSON"),
    ],
)
def test_a_damaged_evaluation(tmp_path, text, reason):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=f"a.json .*{reason}"):
        read_scores([tmp_path / "a.json"], 1)


def row(name, reward, ratio=None, fewer=None, attention=100, successes=2, half=0.01, placed=None):
    won = np.arange(4).reshape(2, 2) < successes
    task = envs.find_task(envs.STEPPING_STONES if placed is None else envs.BIMANUAL_SWEEP)
    balls = None if placed is None else np.array(placed)
    rewards, words = np.full((2, 2), reward), (task.headline_outcome, task.success)
    scores = Scores(rewards, won.astype(float), *words, balls)
    interval = None if ratio is None else (ratio - half, ratio + half)
    cost = {"attention": attention, "total": 1000}
    share = None, None
    if ratio is not None:
        share = scores.success, (0.5, 1.0)
    return Row(name, scores, (reward, reward), ratio, interval, *share, cost, fewer)


def compared(*rows, oracle=None, **settings):
    """A study of these variants, with the control "none", and its results."""
    arms = [{"name": one.name, "control": one.name == "none"} for one in rows]
    stages = ({"trainer": "es", "config": "x"},)
    study = StudyConfig(title="T", stages=stages, arms=arms, baseline="base", **settings)
    references = {} if oracle is None else {"oracle": row("oracle", 5.0, successes=oracle)}
    variants = {one.name: one for one in rows}
    return Results(study, Path(), variants=variants, references=references)


def sentences(*rows, **settings):
    return headline(compared(*rows, **settings))


def test_the_headline_is_made_from_the_figures():
    base, angular = row("base", 4.0), row("angular", 3.96, 0.99, 3.5, successes=3)
    cheap, weak = row("cheap", 3.95, 0.995, 9.0), row("weak", 2.0, 0.5, 50.0)
    unsure = row("unsure", 4.0, 1.0, 20.0, half=0.1)
    found = sentences(base, angular, cheap, weak, unsure, oracle=4, headline="angular")
    low, high = (100 * end for end in angular.scores.success_interval)
    assert found == [
        "angular earns 0.990 times (95 % interval 0.980 to 1.000) the reward of base, for 3.5 "
        "times fewer attention FLOPs a step (2 training seeds, 2 scenes each). Its reward is not "
        "worse by more than 2 %.",
        f"It succeeds in 75.0 % of the episodes ({low:.1f} to {high:.1f} %), the scripted oracle, "
        "which knows the scene, in 100.0 %: 0.750 times as often (95 % interval 0.500 to 1.000).",
        "Cheapest not worse by more than 2 %: cheap earns 0.995 times (95 % interval 0.985 to "
        "1.005) the reward of base, for 9 times fewer attention FLOPs a step (2 training seeds, 2 "
        "scenes each).",
    ]


def test_the_headline_does_not_hide_a_defeat():
    base, weak = row("base", 4.0), row("weak", 2.0, 0.5, 50.0)
    none = row("none", 4.4, 1.1, 300.0)
    found = sentences(base, weak, headline="weak")
    assert found[0].startswith("weak earns 0.500 times")
    assert found[0].endswith("Its reward is worse by more than 2 %.")
    assert found[-1].startswith("No kind of attention with fewer FLOPs than the baseline is within")
    found = sentences(base, weak, none)
    assert found[0].startswith("weak earns 0.500 times")
    assert found[-2].startswith("No kind of attention")
    assert found[-1] == (
        "The control none is not worse by more than 2 %, at 1.100 times "
        "(95 % interval 1.090 to 1.110)."
    )


def test_controls_stand_beside_the_headline():
    base, none = row("base", 4.0, successes=4), row("none", 1.0, successes=1)
    assert (
        of_controls(compared(base, none)) == "Success: 100.0 % by base; controls: 25.0 % by none."
    )
    assert of_controls(compared(base, row("other", 4.0))) == ""
    placed = row("base", 4.0, placed=[[0.8, 0.8], [0.8, 0.6]])
    alone = row("none", 1.0, placed=[[0.1, 0.1], [0.1, 0.1]])
    said = of_controls(compared(placed, alone))
    assert said == "Share of balls in bowls: 0.750 by base; controls: 0.100 by none."


def test_variants_at_the_ceiling_are_named():
    """By intervals that overlap; not if none is near it, nor if only one variant is."""
    best, near, far = (row(name, 4.0, successes=n) for name, n in (("a", 4), ("b", 4), ("base", 3)))
    assert far.scores.success_interval[1] >= best.scores.success_interval[0]
    assert at_ceiling(compared(best, near, far)) == ["a", "b"]
    assert at_ceiling(compared(best, far)) == []
    assert at_ceiling(compared(far, row("b", 4.0, successes=3))) == []
    whole = [[1.0, 1.0], [1.0, 1.0]]
    both = (row(name, 4.0, successes=4, placed=whole) for name in ("a", "base"))
    assert at_ceiling(compared(*both)) == []
