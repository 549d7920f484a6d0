"""Rows of docs/results/summary.md on walking learned from scratch, from the study's record."""

import json

import numpy as np
import pytest

from tests.training.published import ROOT, needs_studies, published, row, share, unpacked
from training.compare.config import slug
from training.io.metrics import read_metrics

pytestmark = [needs_studies, pytest.mark.records]
NAME, DENSE = "stepping_stones_from_scratch", "dense network"
NAMES = {DENSE: DENSE, "without images": "trained without images", "oracle": "oracle",
         "blind": "blind (no correction)"}  # fmt: skip


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "results" / "summary.md").read_text().splitlines()


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
    unpacked_runs = unpacked(name) / "runs"
    by_seed = [one.success for one in results.by_seed(variant).values()]
    files = (unpacked(name) / "evaluations").glob(f"{slug(variant)}-s*-1.json")
    first = [json.loads(file.read_text())["success_rate"] for file in sorted(files)]
    last, before = (" and ".join(f"{100 * one:.0f}" for one in some) for some in (by_seed, first))
    assert f"on {last} % of 100 unseen terrains" in " ".join(page)
    assert f"without it, success is {before} %" in " ".join(page)
    for run, search, ranges in (
        ("-s0-1", "", ((1, 50), (101, 150), (151, 210))),
        ("-s0", "second ", ((61, 90),)),
    ):
        columns = read_metrics(unpacked_runs / f"{slug(variant)}{run}").columns
        for first, last in ranges:
            parts = ("reward_mean", "success_rate", "center_distance_m")
            reward, success, walked = (np.mean(columns[part][first - 1 : last]) for part in parts)
            cells = (f"{reward:.1f}", f"{100 * success:.0f}", f"{walked:.2f}")
            assert row(f"{search}{first}-{last}", *cells) in page


def test_row_of_the_default_job_after_its_first_minutes(page):
    study, results = published("stepping_stones_minutes")
    name = study.headline
    scores = results.scores(name)
    by_seed = ", ".join(f"{100 * one.success:.0f}" for one in results.by_seed(name).values())
    low, high = (100 * end for end in scores.success_interval)
    files = (unpacked("stepping_stones_minutes") / "evaluations").glob(f"{slug(name)}-s*.json")
    walked = np.mean([json.loads(file.read_text())["distance_m_mean"] for file in files])
    (found,) = [line for line in page if f"the default job after {name}" in line]
    assert f": {by_seed} % (" in found
    cells = (f"{100 * scores.success:.0f} ({low:.1f}-{high:.1f})", f"{walked:.2f}")
    assert f"| {cells[0]} | {cells[1]} |" in found, cells
