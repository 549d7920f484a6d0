"""The studies of sweeping in docs/studies show what the project claims, and are quoted rightly."""

import pytest

from tests.training.published import needs_studies, printed, published, short

pytestmark = [needs_studies, pytest.mark.records]
PAGE = "docs/results/bimanual_sweep.md"


NAMES = {
    "no attention": "none",
    "mean over patches, m = 16, n = 1": "angular 16x1, mean over patches",
    "least energy, m = 16, n = 1": "angular 16x1, least energy",
}


def swept(row):
    """Fraction in bowls with its standard error over scenes, reward, ratio and attention's cost."""
    assert row.scores.seeds == 3
    scenes = row.scores.measured.mean(0)
    error = scenes.std(ddof=1) / len(scenes) ** 0.5
    ratio = ""
    if row.ratio is not None:
        ratio = "{:.3f} ({:.3f}-{:.3f})".format(row.ratio, *row.ratio_interval)
    cells = [f"{scenes.mean():.3f} +- {error:.3f}", f"{row.scores.reward:.1f}", ratio]
    return [*cells, f"{row.cost['attention'] / 1e6:.1f}"]


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


@pytest.mark.parametrize(
    ("name", "section"),
    [("bimanual_sweep", "Results"), ("bimanual_sweep_choices", "Choice of m and n")],
)
def test_tables_quote_them(name, section):
    _, summary = published(name)
    table = printed(PAGE, section)
    table.pop("expert", None)
    rows = {NAMES.get(one, short(one)): swept(row) for one, row in summary.variants.items()}
    assert table == rows
