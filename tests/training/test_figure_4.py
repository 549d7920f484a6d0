"""The studies of Figure 4 in miniature: their pair learns a step and is evaluated."""

from pathlib import Path

import pytest
import yaml

from tests.training.study_jobs import conduct, figures

STUDIES = Path(__file__).resolve().parents[2] / "configs" / "studies"
WALKS = {"iterations": 1, "popsize": 2, "terrains": 1, "center_terrains": 1, "episode_s": 0.1}
SWEEPS = {"iterations": 1, "updates": 1, "batch_size": 2, "warm_up": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("figure_4_left", WALKS),
        ("figure_4_left_dense", WALKS),
        ("figure_4_right", SWEEPS),
        ("figure_4_right_500", SWEEPS),
    ],
)
def test_a_study_of_figure_4_runs_in_miniature(name, short, tmp_path):
    cut = yaml.safe_load((STUDIES / f"{name}.yaml").read_text())
    pair = (cut["baseline"], cut["headline"])
    cut |= {
        "arms": [arm for arm in cut["arms"] if arm["name"] in pair],
        "leading_arms": None, "references": [], "seeds": [0], "episodes": 2,
        "env": {"episode_s": 0.1},
    }  # fmt: skip
    (stage,) = cut["stages"]
    stage["config"] = str((STUDIES / stage["config"]).resolve())
    stage["set"] |= short
    for curve in cut.get("curves", []):
        curve |= {"episodes": 2, "points": curve["points"][:1]}
    if "demonstrations" in cut:
        words = cut["demonstrations"].split()
        words[words.index("--episodes") + 1] = "2"
        words[words.index("--out") + 1] = str(tmp_path / "demos")
        cut["demonstrations"] = " ".join([*words, "--set", "episode_s=0.1"])
        stage["set"]["demonstrations"] = str(tmp_path / "demos")
    (tmp_path / "cut.yaml").write_text(yaml.safe_dump(cut))
    out = tmp_path / "out"
    assert conduct(tmp_path / "cut.yaml", out, "--only", "train", "evaluate") == 0
    assert len(figures(out)) == len(pair) * (1 + len(cut.get("curves", [])))
    assert all(arm in (out / "report.html").read_text() for arm in pair)
