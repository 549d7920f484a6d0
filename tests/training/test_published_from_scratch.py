"""Rows of docs/results/summary.md on walking learned from scratch, from the study's record."""

import json

import numpy as np
import pytest

from tests.training.published import ROOT, needs_studies, published, unpacked
from training.compare.config import slug
from training.io.metrics import read_metrics

pytestmark = [needs_studies, pytest.mark.records]
NAME, DENSE = "stepping_stones_from_scratch", "dense network"
NAMES = {DENSE: DENSE, "without images": "trained without images", "oracle": "oracle",
         "blind": "blind (no correction)"}  # fmt: skip


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "results" / "summary.md").read_text().splitlines()


def row(*cells):
    return "".join(f"| {cell} " if cell != "" else "| " for cell in cells) + "|"


def share(scores):
    if scores is None:
        return ""
    low, high = (100 * end for end in scores.success_interval)
    return f"{100 * scores.success:.1f} ({low:.1f}-{high:.1f})"


def rows():
    study, results = published(NAME)
    (curve,) = study.curves
    for name, words in NAMES.items():
        by_seed = [f"{100 * one.success:.0f}" for one in results.by_seed(name).values()]
        if results.scores(name) is None:
            continue
        longer = [results.scores(name, curve, point) for point in curve.points[1:]]
        yield row(words, " ".join(by_seed), *map(share, (results.scores(name), *longer)))
    yield row("its images those of another episode", "", share(results.blind[DENSE].scores), "", "")
    curves = [read_metrics(unpacked(NAME) / "runs" / f"{slug(DENSE)}-s{seed}").columns
              for seed in results.by_seed(DENSE)]  # fmt: skip
    for iteration in (4, 8, 12, 16):
        cells = [f"{np.mean([one['episodes'][iteration - 1] for one in curves]):.0f}"]
        cells += [f"{np.mean([one['wall_s'][iteration - 1] for one in curves]) / 60:.1f}"]
        at = 100 * np.array([one["success_rate"][iteration - 1] for one in curves])
        cells.append(f"{at.mean():.0f} ({at.min():.0f}-{at.max():.0f})")
        yield row(iteration, *cells)


def test_rows(page):
    _, results = published(NAME)
    assert min(one.success for one in results.by_seed(DENSE).values()) >= 0.8
    for one in rows():
        assert one in page, one


def test_rows_of_evolution_strategies(page):
    name, variant = f"{NAME}_es", "linear map"
    _, results = published(name)
    scores = results.scores(variant)
    low, high = (100 * end for end in scores.success_interval)
    evaluated = json.loads((unpacked(name) / "evaluations" / "linear-map-s0.json").read_text())
    walked = np.mean([one["distance_m"] for one in evaluated["records"]])
    found = f"{walked:.2f} m and succeeds on {100 * scores.success:.0f} %"
    assert f"its centre walks {found} ({low:.0f}-{high:.1f})" in " ".join(page)
    columns = read_metrics(unpacked(name) / "runs" / f"{slug(variant)}-s0").columns
    for first, last in ((1, 10), (11, 20), (21, 30), (31, 40), (41, 53)):
        parts = ("reward_mean", "distance_m_mean", "center_distance_m")
        means = [f"{np.mean(columns[part][first - 1 : last]):.2f}" for part in parts]
        steps = f"{int(columns['env_steps'][last - 1]):,}"
        assert row(f"{first}-{last}", steps, *means) in page
