"""The study in docs/studies shows what the project claims, and the documents quote it rightly."""

from html import escape
from pathlib import Path

import pytest

from training.studies.config import load_config
from training.studies.summary import headline, summarise

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "studies" / "stepping_stones"
pytestmark = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="docs/studies is not part of a source distribution"
)
HYBRID, CHEAPEST = "angular m = n = 8", "angular m = 4, n = 2"


@pytest.fixture(scope="module")
def study():
    return load_config(ROOT / "configs" / "studies" / "stepping_stones.yaml")


@pytest.fixture(scope="module")
def summary(study):
    return summarise(study, PUBLISHED)


def test_a_third_of_the_attention_earns_as_much(study, summary):
    """Within 2 % of the baseline by the interval's end, at least 90 % as often as the oracle."""
    hybrid, baseline = summary.arms[HYBRID], summary.arms[study.baseline]
    assert hybrid.scores.rewards.shape == (3, 200)
    assert hybrid.ratio_interval[0] >= 0.98
    assert hybrid.of_oracle_interval[0] >= 0.9
    assert hybrid.fewer >= 3
    assert hybrid.cost["latency_ms"] < baseline.cost["latency_ms"]


def test_a_tenth_is_enough(summary):
    cheapest = summary.arms[CHEAPEST]
    assert cheapest.fewer >= 8
    assert cheapest.ratio >= 0.98


def test_the_page_says_so(study, summary):
    page = (PUBLISHED / "report.html").read_text()
    for sentence in headline(study, summary):
        assert escape(sentence) in page


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
@pytest.mark.parametrize("arm", [HYBRID, CHEAPEST])
def test_documents_quote_it(summary, name, arm):
    text = (ROOT / name).read_text()
    row = summary.arms[arm]
    low, high = row.scores.success_interval
    for figure in (
        f"{row.ratio:.3f}",
        f"{row.ratio_interval[0]:.3f}",
        f"{row.ratio_interval[1]:.3f}",
        f"{100 * row.scores.success:.1f} % ({100 * low:.1f}-{100 * high:.3g})",
        f"| {row.scores.reward:.3f} |",
        f"| {row.cost['attention'] / 1e6:.2f} M | {row.cost['total'] / 1e6:.2f} M |",
    ):
        assert figure in text, figure
