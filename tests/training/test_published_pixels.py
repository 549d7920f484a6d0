"""Rows of docs/results/summary.md on pixels as tokens, from the study's record."""

import json

import numpy as np
import pytest

from tests.training.published import ROOT, needs_studies, published, row, share, unpacked
from training.compare.config import slug
from training.io.metrics import read_metrics

pytestmark = [needs_studies, pytest.mark.records]
NAME = "pixels_as_tokens"
NAMES = {
    "row and column means": "means of rows and columns", "all pixels": "all pixels",
    "angular m = n = 8": "a tenth, selected by angular 8x8", "random tenth": "a random tenth",
}  # fmt: skip
FINE = "96 x 128, "
OPPOSED = ("angular m = n = 8, opposed keys",
           "angular m = n = 8, opposed keys, means of rows and columns")  # fmt: skip


def curves(name):
    """Success while exploring, (seeds, iterations)."""
    found = sorted((unpacked(NAME) / "runs").glob(f"{slug(name)}-s*"))
    return np.array([read_metrics(run).columns["success_rate"] for run in found])


def rows():
    _, results = published(NAME)
    costs = json.loads((unpacked(NAME) / "costs.json").read_text())["costs"]

    def cost(name):
        return [f"{costs[name]['attention'] / 1e6:.2f}", f"{costs[name]['latency_ms']:.2f}"]

    for name, words in NAMES.items():
        by_seed = [f"{100 * one.success:.0f}" for one in results.by_seed(name).values()]
        cells = [words, " ".join(by_seed), share(results.scores(name), 0)]
        cells += [f"{100 * curves(name)[:, -1].mean():.0f}", *cost(name)]
        cells += [share(results.scores(FINE + name), 0), *cost(FINE + name)]
        yield row(*cells)


def test_rows():
    page = (ROOT / "docs" / "results" / "summary.md").read_text()
    for one in rows():
        assert one in page.splitlines(), one
    _, results = published(NAME)
    assert results.scores("blind").success == 0
    assert f"the oracle succeeds on {100 * results.scores('oracle').success:.0f} %" in page
    pixels, means = (100 * results.scores(name).success for name in OPPOSED)
    found = f"on {pixels:.0f} % with pixels and on {means:.0f} % with means"
    assert found in " ".join(page.split())
    for name, least, most in (("angular m = n = 8", 0, 0), *((name, 0.9, 1) for name in OPPOSED)):
        for file in (unpacked(NAME) / "gaze").glob(f"{slug(name)}-s*"):
            assert least <= json.loads(file.read_text())["past_kept"] <= most
    assert all(curves(name).max() < 0.8 for name in results.variants)
