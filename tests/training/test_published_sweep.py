"""The studies of sweeping in docs/studies show what the project claims, and are quoted rightly."""

import pytest

from tests.training.published import needs_studies, published, quoted

pytestmark = needs_studies
PAGE = "docs/results/bimanual_sweep.md"


def swept(row):
    """Mean fraction in bowls, its standard error over scenes, the mean reward: cells of a table."""
    scenes = row.scores.measured.mean(0)
    error = scenes.std(ddof=1) / len(scenes) ** 0.5
    cost = row.cost["attention"] / 1e6
    return f"{scenes.mean():.3f} +- {error:.3f} | {row.scores.reward:.1f} | {cost:.1f} M |"


def test_m_and_n_were_chosen_on_validation_scenes():
    """The study's hybrid is the best that takes at most a third of the baseline's attention."""
    study, summary = published("bimanual_sweep")
    choices, candidates = published("bimanual_sweep_choices")
    assert choices.evaluation_seed == 90_000
    assert len(candidates.variants) == len(choices.arms) == 4
    for row in candidates.variants.values():
        assert row.scores.measured.shape == (3, 50)
        assert 3 * row.cost["attention"] <= summary.variants[study.baseline].cost["attention"]
    best = max(candidates.variants, key=lambda name: candidates.variants[name].scores.reward)
    assert best == study.headline


def test_the_hybrid_sweeps_for_a_third_of_the_attention():
    study, summary = published("bimanual_sweep")
    hybrid, baseline = summary.variants[study.headline], summary.variants[study.baseline]
    assert hybrid.scores.measured.shape == baseline.scores.measured.shape
    assert hybrid.scores.measured.shape[1] == 50
    assert hybrid.scores.measured.mean() >= 0.75
    assert hybrid.fewer >= 3


@pytest.mark.parametrize("name", ["bimanual_sweep", "bimanual_sweep_choices"])
def test_tables_quote_them(name):
    _, summary = published(name)
    rows = [swept(row) for row in summary.variants.values()]
    found = quoted(PAGE, " M |")
    assert [row for row in found if row in rows] == rows
