"""The study in docs/studies shows what the project claims, and the documents quote it rightly."""

import json
from html import escape

import pytest

from tests.training.published import (
    ROOT,
    STUDIES,
    needs_studies,
    printed,
    published,
    short,
    unpacked,
)
from training import evaluate
from training.compare.claims import headline

PUBLISHED = STUDIES / "stepping_stones"
pytestmark = [needs_studies, pytest.mark.records]
HYBRID, CHEAPEST = "angular m = n = 8", "OPRF m = 16"
PAGE = "docs/results/summary.md"
NAMES = {"no attention": "none, all tokens", "random tokens": "none, random half"}
"""The document's name of a control, by the study's."""


@pytest.fixture(scope="module")
def both():
    return published("stepping_stones")


@pytest.fixture(scope="module")
def study(both):
    return both[0]


@pytest.fixture(scope="module")
def summary(both):
    return both[1]


def test_a_third_of_the_attention_earns_as_much(study, summary):
    """Within 2 % of the baseline by the interval's end, at least 90 % as often as the oracle."""
    hybrid, baseline = summary.variants[HYBRID], summary.variants[study.baseline]
    assert hybrid.scores.rewards.shape == (3, 200)
    assert hybrid.ratio_interval[0] >= 0.98
    assert hybrid.of_oracle_interval[0] >= 0.9
    assert hybrid.fewer >= 3
    assert hybrid.cost["latency_ms"] < baseline.cost["latency_ms"]


def test_a_tenth_is_enough(summary):
    cheapest = summary.variants[CHEAPEST]
    assert cheapest.scores.rewards.shape == (3, 200)
    assert cheapest.fewer >= 8
    assert cheapest.ratio_interval[0] >= 0.98


def test_controls_are_not_cheap_attention(study, summary):
    assert study.controls == {"no attention", "random tokens"}
    for name in study.controls:
        assert summary.variants[name].fewer is None
        assert not any(name in front for front in map(summary.front, ("attention", "total")))


def test_the_page_says_so(summary):
    page = (PUBLISHED / "report.html").read_text()
    for sentence in headline(summary):
        assert escape(sentence) in page


def test_the_policy_that_ships_is_the_one_evaluated(tmp_path):
    """On the first terrain, as far as another processor's rounding lets it."""
    shipped = "stepping_stones_angular_8x8"
    assert evaluate.main([shipped, "--no-floors", "--episodes", "1", "--out", str(tmp_path)]) == 0
    again = json.loads((tmp_path / "evaluation.json").read_text())[0]
    text = (unpacked("stepping_stones") / "evaluations" / "angular-m-n-8-s0.json").read_text()
    first = json.loads(text)["records"][0]
    assert again["seeds"] == [first["seed"]]
    assert again["reward_mean"] == pytest.approx(first["reward"], abs=0.1)


def table_row(row):
    assert row.scores.seeds == 3
    low, high = row.scores.success_interval
    ratio = ""
    if row.ratio is not None:
        ratio = "{:.3f} ({:.3f}-{:.3f})".format(row.ratio, *row.ratio_interval)
    attention = row.cost["attention"] / 1e6
    assert f"{row.cost['total'] / 1e6 - attention:.2f}" == "0.22"
    return [
        f"{100 * row.scores.success:.1f} ({100 * low:.1f}-{100 * high:.3g})",
        f"{row.scores.reward:.3f}",
        ratio,
        f"{attention:.2f}" if attention else "0",
        f"{row.cost['latency_ms']:.2f}",
    ]


def test_tables_quote_it(summary):
    table = printed(PAGE, "Stepping stones: kinds of attention")
    assert table.pop("oracle (knows the stones)")
    rows = {NAMES.get(name, short(name)): table_row(row) for name, row in summary.variants.items()}
    assert table == rows


@pytest.mark.parametrize("name", ["README.md", "docs/results/summary.md"])
@pytest.mark.parametrize("arm", [HYBRID, CHEAPEST])
def test_documents_quote_ratios(summary, name, arm):
    text = (ROOT / name).read_text()
    row = summary.variants[arm]
    for figure in (row.ratio, *row.ratio_interval):
        assert f"{figure:.3f}" in text


def test_curves_are_quoted(study, summary):
    """Success in percent at every place of every curve, of the variants that the page shows."""
    places = [(curve, point) for curve in study.curves for point in curve.points if point.set]
    table = printed(PAGE, "Harder terrain, distraction")
    variants = {NAMES.get(name, short(name)): name for name in (*summary.variants, "oracle")}
    for name, cells in table.items():
        scores = [summary.scores(variants[name], *place) for place in places]
        assert cells == [f"{100 * one.success:.0f}" for one in scores], name
    assert {short(HYBRID), short(CHEAPEST), short(study.baseline), *NAMES.values()} <= set(table)
