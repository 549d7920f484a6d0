"""Rows of docs/results/figure_4.md, Figure 4 of Hybrid Random Features, from the records."""

import numpy as np
import pytest

from tests.training.published import (
    ROOT,
    around,
    needs_studies,
    published,
    row,
    share,
    short,
    unpacked,
)  # fmt: skip
from training.analysis.evaluator import standard_error
from training.analysis.intervals import mean_interval, ratio_interval
from training.compare.config import slug
from training.compare.tables import best_pairs
from training.io.metrics import read_metrics

pytestmark = [needs_studies, pytest.mark.records]
PAIR = {"FAVOR+ m = 256": "FAVOR+ 256", "angular m = n = 8": "angular 8x8"}
ARMS = PAIR | {"exact softmax": "exact softmax", "no attention": "none"}
"""The study's name of an arm, and the document's."""
NAMES = ARMS | {"random half": "none, random half"}


@pytest.fixture(scope="module")
def page():
    """The document's lines."""
    text = (ROOT / "docs" / "results" / "figure_4.md").read_text()
    return text.splitlines()


def named(arm):
    return NAMES.get(arm, short(arm))


def best(name, arm):
    """Reward and success of the best seeds; empty for too few seeds."""
    pairs = best_pairs(published(name)[1]).get(arm)
    if pairs is None:
        return "", None
    kept = [seed for _, seed in pairs]
    scores = published(name)[1].variants[arm].scores
    rewards = scores.rewards[kept].mean(1)
    return f"{rewards.mean():.3f} ± {rewards.std(ddof=1):.3f}", scores.successes[kept].mean()


@pytest.mark.parametrize("arm", ARMS)
def test_rewards_of_foothold_votes(arm, page):
    _, summary = published("figure_4_left")
    found = summary.variants[arm]
    scores = found.scores
    cells = [ARMS[arm], f"{scores.seeds}", share(scores)]
    cells += [f"{scores.reward:.3f} ± {scores.reward_sd:.3f}"]
    cells += [f"{found.ratio:.3f} {around(*found.ratio_interval, 3)}" if found.ratio else ""]
    reward, success = best("figure_4_left", arm)
    cells += [reward, "" if success is None else f"{100 * success:.1f}"]
    assert row(*cells) in page


@pytest.mark.parametrize("arm", ARMS)
def test_learning_curves_of_foothold_votes(arm, page):
    study, summary = published("figure_4_left")
    runs = [unpacked("figure_4_left") / "runs" / f"{slug(arm)}-s{s}" for s in study.seeds]
    curves = [read_metrics(run) for run in runs if run.is_dir()]
    assert len(curves) == summary.variants[arm].scores.seeds
    cells = [ARMS[arm]]
    for iteration in (5, 20, 50):
        at = [one.columns["center_reward"][iteration - 1] for one in curves]
        cells.append(f"{np.mean(at):.2f} {around(min(at), max(at), 2)}")
    assert row(*cells) in page


def on_longer_gaps(arm):
    study, results = published("figure_4_left")
    (curve,) = (one for one in study.curves if "gap" in one.name)
    points = curve.points[-3:-1]
    return [results.scores(arm, curve, point) for point in points]


def test_success_over_longer_gaps(page):
    _, hybrid, exact, none = (on_longer_gaps(arm) for arm in ARMS)
    for arm in [*ARMS][:3]:
        assert row(ARMS[arm], *(share(one, 0) for one in on_longer_gaps(arm))) in page
    between = ratio_interval(exact[0].rewards, hybrid[0].rewards)
    found = f"{exact[0].reward / hybrid[0].reward:.2f} times the reward of angular 8x8"
    assert f"{found} ({between[0]:.2f} to {between[1]:.2f})" in " ".join(page)
    assert row("none", *(f"{100 * one.success:.0f}" for one in none)) in page


@pytest.mark.parametrize("arm", [*PAIR, "no attention"])
def test_rewards_of_a_dense_controller_by_evolution_strategies(arm, page):
    _, summary = published("figure_4_left_dense")
    scores = summary.variants[arm].scores
    assert scores.success == 0
    assert f" {scores.reward:.3f} ± {scores.reward_sd:.3f} ({scores.seeds}" in " ".join(page)


def learned_rows():
    """Rows of the dense controllers."""
    study, results = published("figure_4_left_learned")
    (curve,) = study.curves
    (point,) = curve.points
    for name, found in results.variants.items():
        cells = [named(name), share(found.scores, 0)]
        cells += [f"{found.ratio:.3f} {around(*found.ratio_interval, 3)}" if found.ratio else ""]
        cells += [best("figure_4_left_learned", name)[0]]
        yield row(*cells, share(results.scores(name, curve, point), 0))


def learned_while_exploring():
    """Least and greatest success of the variants after 8 and 16 iterations, and in the last ones of
    evolution strategies."""
    runs = unpacked("figure_4_left_learned") / "runs"
    names = [arm.name for arm in published("figure_4_left_learned")[0].arms]
    for stage, iteration in (("-1", 7), ("-1", 15), ("", -1)):
        found = [
            100 * np.mean([read_metrics(run).columns["success_rate"][iteration]
                           for run in runs.glob(f"{slug(name)}-s?{stage}")])
            for name in names
        ]  # fmt: skip
        yield f"{min(found):.0f}", f"{max(found):.0f}", names[np.argmax(found)]


def test_a_dense_controller_learned_by_ppo_and_evolution_strategies(page):
    for one in learned_rows():
        assert one in page, one
    study, results = published("figure_4_left_learned")
    (curve,), name = study.curves, study.headline
    first = [f"{slug(name)}-s{seed}-1" for seed in study.seeds]
    for place in ((), (curve, curve.points[0])):
        before, after = results.of_policies(first, *place), results.scores(name, *place)
        gain = 100 * (after.outcomes - before.outcomes)
        mean, (low, high) = gain.mean(), mean_interval(gain)
        rounded = [f"{100 * one.success + 1e-9:.0f}" for one in (before, after)]
        found = f"from {' to '.join(rounded)} %, by {mean:+.1f} points ({low:.1f} to {high:.1f})"
        assert found in " ".join(page), found
    oracle = results.scores("oracle"), results.scores("oracle", curve, curve.points[0])
    found = "oracle succeeds on {:.0f} and {:.0f} %".format(
        *(100 * one.success + 1e-9 for one in oracle)
    )
    assert found in " ".join(page)
    (low, high, _), (least, most, best_one), (last, greatest, _) = learned_while_exploring()
    assert best_one == "random half"
    found = f"{least} (none) to {most} % (random half) after 16, and {last} to {greatest} % in"
    assert found in " ".join(page)
    assert f"{low} to {high} % of episodes succeed" in " ".join(page)
    cost = {name: found.cost["attention"] for name, found in results.variants.items()}
    one, two = (cost[f"FAVOR+ m = 256, {sided}-sided"] for sided in ("one", "two"))
    hybrid = cost["angular m = n = 8"]
    found = f"{one / hybrid:.2f} times fewer FLOPs of attention (two-sided: {two / hybrid:.2f})"
    assert found in " ".join(page)


RATES = ("1e-3", "1e-4", "1e-5")


def error(values, digits):
    """Mean and standard error over scenes of one seed's episodes."""
    if not values.any():
        return "0"
    return f"{values.mean():.{digits}f} ± {standard_error(values):.{digits}f}"


def test_balls_in_bowls_at_every_learning_rate(page):
    study, summary = published("figure_4_right", "episodes=30")
    for group in dict.fromkeys(arm.group for arm in study.arms):
        found = [summary.variants.get(f"{group}, {rate}") for rate in RATES]
        if not any(found):
            continue
        cells = ["" if one is None else error(one.scores.outcomes[0], 3) for one in found]
        means = ["", ""]
        if all(found):
            means = [f"{np.mean([one.scores.outcomes.mean() for one in found]):.3f}",
                     f"{np.mean([one.scores.reward for one in found]):.0f}"]  # fmt: skip
        assert row(named(group), *cells, *means) in page, row(named(group), *cells, *means)


def test_losses_at_every_learning_rate(page):
    """Every run's losses are finite; the document has the range of the last ones at each rate."""
    out = unpacked("figure_4_right") / "runs"
    for rate in RATES:
        losses = [read_metrics(run).columns["loss"] for run in out.glob(f"*-{rate}-s0")]
        assert len(losses) == 9
        assert all(np.isfinite(one).all() for one in losses)
        last = [one[-1] for one in losses]
        assert f"{min(last):.3f} to {max(last):.3f} at {rate}" in " ".join(" ".join(page).split())


@pytest.mark.parametrize("arm", PAIR)
def test_the_pair_with_the_papers_camera(arm, page):
    _, summary = published("figure_4_right_500", "episodes=30")
    run = unpacked("figure_4_right_500") / "runs" / f"{slug(arm)}-s0"
    found = summary.variants[arm]
    scores, cost = found.scores, found.cost
    cells = [PAIR[arm], error(scores.outcomes[0], 3), error(scores.rewards[0], 0)]
    cells += [f"{found.ratio:.3f} {around(*found.ratio_interval, 3)}" if found.ratio else ""]
    cells += [f"{read_metrics(run).columns['val_loss'][-1]:.3f}"]
    cells += [f"{cost['attention'] / 1e6:.0f}", f"{cost['total'] / 1e6:.0f}"]
    cells += [f"{cost['p50_ms']:.1f}"]
    assert row(*cells) in page, row(*cells)
