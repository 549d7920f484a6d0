"""Controls against all kinds of attention together: from the episodes, or not at all."""

import json
import re

import numpy as np
import pytest
from markupsafe import escape

from training.analysis.intervals import mean_interval
from training.compare.config import StudyConfig
from training.compare.evaluations import evaluation_file
from training.compare.results import Results
from training.compare.tables import controls

SUCCESSES = {
    "one": [[1, 1, 0, 0], [1, 0, 0, 0]],
    "other": [[1, 1, 1, 0], [0, 0, 0, 0]],
    "none": [[1, 1, 1, 1], [1, 1, 0, 1]],
}
"""(seeds, scenes) of each arm."""


def study(**changes):
    arms = [{"name": name, "control": name == "none"} for name in SUCCESSES]
    curve = {"name": "wind", "xlabel": "wind (m/s)", "episodes": 4,
             "points": [{"x": 2.0, "set": {"wind": 2.0}}]}  # fmt: skip
    plain = {
        "title": "T", "stages": [{"trainer": "es", "config": "x"}], "arms": arms, "seeds": [0, 1],
        "baseline": "one", "curves": [curve],
    }  # fmt: skip
    return StudyConfig(**(plain | changes))


@pytest.fixture
def out(tmp_path):
    for name, of_seeds in SUCCESSES.items():
        for seed, successes in enumerate(of_seeds):
            path = evaluation_file(tmp_path, f"{name}-s{seed}", "wind", 2.0)
            path.parent.mkdir(exist_ok=True)
            records = [{"reward": 1.0, "success": float(one)} for one in successes]
            path.write_text(json.dumps({"records": records}))
    return tmp_path


def test_the_difference_is_that_of_paired_episodes(out):
    config = study()
    html = escape(controls(Results(config, out), config.curves[0]))
    together = np.mean([SUCCESSES["one"], SUCCESSES["other"]], axis=0)
    more = 100 * (np.array(SUCCESSES["none"]) - together)
    low, high = mean_interval(more)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells == ["2", "38 %", f"+50 <small>{low:.0f} to {high:.0f}</small>"]
    assert "wind (m/s)" in html


def test_nothing_before_all_are_evaluated(out):
    evaluation_file(out, "none-s1", "wind", 2.0).unlink()
    config = study()
    assert controls(Results(config, out), config.curves[0]) is None


def test_nothing_without_controls(out):
    config = study(arms=[{"name": name} for name in SUCCESSES])
    assert controls(Results(config, out), config.curves[0]) is None
