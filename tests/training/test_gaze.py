"""Where a policy looks: shares counted by hand, and the part of a study that measures them."""

import json

import numpy as np
import pytest

import envs
from tests.training.study_jobs import conduct, write_study
from training.gaze import distracted, gap_edges, gaze, oracle_views

STONE, FLOOR = 0.4, 0.85


class Keeps:
    """Keeps given tokens of one 4 x 4 image in patches of 2 x 2."""

    class config:
        patch = (2, 2)

    def __init__(self, *tokens):
        self.mask = np.zeros((1, 4, 4), bool)
        for row, column in tokens:
            self.mask[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = True

    def attention_mask(self, view):
        return self.mask


def image():
    """A gap in the last row of the left half; floor beside the stones, on the right."""
    depth = np.full((1, 4, 4), STONE, np.float32)
    depth[0, :, 3] = FLOOR
    depth[0, 3, :2] = FLOOR
    return depth


def test_edges_lie_across_columns_alone():
    edges = gap_edges(image())[0]
    expected = np.zeros((4, 4), bool)
    expected[2:, :2] = True
    assert (edges == expected).all()


@pytest.mark.parametrize(
    ("kept", "edges_kept", "past_kept"),
    [([(1, 0)], 1.0, 0.5), ([(0, 0)], 0.0, 0.0), ([(1, 0), (0, 1)], 0.5, 0.5)],
)
def test_shares_of_what_is_kept_and_chance(kept, edges_kept, past_kept):
    found = gaze(Keeps(*kept), [{"depth": image()}])
    assert found.edges_kept == edges_kept
    assert found.edges == 1 / 4
    assert found.past_kept == past_kept
    assert found.past == pytest.approx(6 / 16)


@pytest.mark.parametrize(("kept", "share"), [([(1, 0)], 0.5), ([(0, 0)], 0.0)])
def test_shares_of_what_a_distraction_changed(kept, share):
    before = image()
    before[0, 3, :2] = STONE
    assert distracted(Keeps(*kept), [{"depth": image()}], [{"depth": before}]) == (share, 2 / 16)


def test_the_oracle_walks_alike_where_cameras_lie():
    walks = [
        oracle_views({"episode_s": 1.0, **lies}, [3])
        for lies in ({}, {"depth_dropped_blocks": 0.1}, {"clutter_per_m": 20.0})
    ]
    plain = [view["proprio"] for view in walks[0]]
    for views in walks[1:]:
        assert np.array_equal([view["proprio"] for view in views], plain)
        changed = [(a["depth"] != b["depth"]).mean() for a, b in zip(views, walks[0], strict=True)]
        assert 0.01 < np.mean(changed) < 0.5


def test_the_oracle_sees_gaps():
    views = oracle_views({"episode_s": 2.0}, [3])
    assert len(views) > 2
    shares = [gap_edges(view["depth"]).mean() for view in views]
    assert 0.01 < np.mean(shares) < 0.5


def test_a_study_of_stepping_stones_says_where_its_policies_look(tmp_path):
    job = {
        "env_id": envs.STEPPING_STONES, "env": {"episode_s": 0.3}, "iterations": 1, "popsize": 2,
        "searcher": {"name": "ars", "sigma": 0.1},
    }  # fmt: skip
    arms = [
        {"name": "kept", "set": {}},
        {"name": "none", "control": True, "set": {"policy.selection": "all"}},
    ]
    path = write_study(
        tmp_path, job, arms=arms, baseline="kept", seeds=[0], references=[], episodes=2,
        env={"episode_s": 0.3}, videos=False,
    )  # fmt: skip
    out = tmp_path / "out"
    assert conduct(path, out) == 0
    found = {p.name: json.loads(p.read_text()) for p in (out / "gaze").iterdir()}
    assert set(found) == {"kept-s0.json"}
    assert 0 < found["kept-s0.json"]["edges_kept"] < 1
    assert "Where the policies look" in (out / "report.html").read_text()
    assert conduct(path, out) == 0
