"""Rows of docs/results/summary.md on pixels as tokens, from the study's record."""

import json

import numpy as np
import pytest

from tests.training.published import ROOT, needs_studies, published, unpacked
from training.compare.config import slug
from training.io.metrics import read_metrics

pytestmark = [needs_studies, pytest.mark.records]
NAME = "pixels_as_tokens"
NAMES = {
    "row and column means": "means of rows and columns", "all pixels": "all pixels",
    "angular m = n = 8": "a tenth, selected by angular 8x8", "random tenth": "a random tenth",
    "oracle": "oracle", "blind": "blind (no correction)",
}  # fmt: skip


def curves(name):
    """Success while exploring, (seeds, iterations)."""
    found = sorted((unpacked(NAME) / "runs").glob(f"{slug(name)}-s*"))
    return np.array([read_metrics(run).columns["success_rate"] for run in found])


def rows():
    _, results = published(NAME)
    costs = json.loads((unpacked(NAME) / "costs.json").read_text())["costs"]
    for name, words in NAMES.items():
        scores = results.scores(name)
        low, high = (100 * end for end in scores.success_interval)
        by_seed = [f"{100 * one.success:.0f}" for one in results.by_seed(name).values()]
        cells = [words, " ".join(by_seed), f"{100 * scores.success:.0f} ({low:.0f}-{high:.0f})"]
        if name in costs:
            cells.append(f"{100 * curves(name)[:, -1].mean():.0f}")
            cells += [f"{costs[name]['attention'] / 1e6:.2f}", f"{costs[name]['latency_ms']:.2f}"]
        else:
            cells += [""] * 3
        yield "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def test_rows():
    page = (ROOT / "docs" / "results" / "summary.md").read_text().splitlines()
    for one in rows():
        assert one in page, one
    assert all(curves(name).max() < 0.8 for name in list(NAMES)[:4])
