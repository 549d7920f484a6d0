"""Where a policy looks: shares counted by hand, and the part of a study that measures them."""

import json

import numpy as np
import pytest

import envs
from tests.training.study_jobs import conduct, write_study
from training.analysis.gaze import axes_ahead, distracted, gap_edges, gaze, oracle_views
from training.collect.environments import make_env

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
    """Columns run ahead: a gap in the last column of the upper half; floor beside the stones,
    below."""
    depth = np.full((1, 4, 4), STONE, np.float32)
    depth[0, 3, :] = FLOOR
    depth[0, :2, 3] = FLOOR
    return depth


def test_edges_lie_ahead_alone():
    edges = gap_edges(image())[0]
    expected = np.zeros((4, 4), bool)
    expected[:2, 2:] = True
    assert (edges == expected).all()
    turned = gap_edges(image().mT, ahead=[0])[0]
    assert (turned == expected.T).all()


@pytest.mark.parametrize(
    ("camera", "axis"),
    [
        ({}, 1),
        ({"yaw_deg": 90.0}, 0),
        ({"pitch_deg": 0.0, "width_along": "lateral"}, 0),
        ({"pitch_deg": 45.0, "yaw_deg": 180.0}, 1),
    ],
)
def test_what_is_ahead_follows_from_the_cameras(camera, axis):
    settings = {"front_camera": camera}
    assert axes_ahead(settings) == {"depth": (axis, 1)}
    finer = {"front_camera": {**camera, "height_px": 32, "width_px": 24}}
    assert axes_ahead(finer) == {"depth_front": (axis,), "depth_belly": (1,)}


@pytest.mark.parametrize("width_along", ["travel", "lateral"])
def test_gaps_alone_are_gaps(width_along):
    """Stones as wide as what is seen have no edges but at gaps; without gaps they have none."""
    cameras = {key: {"width_along": width_along} for key in ("front_camera", "belly_camera")}
    settings = {"sensor_noise": 0.0, "episode_s": 2.0, "stone_width_m": 3.0, **cameras}
    with make_env("SteppingStones-v0", {**settings, "gap_m": (0.2, 0.2)}) as env:
        view, ahead = env.reset(seed=3)[0], axes_ahead(settings)
        assert gap_edges(view["depth"], ahead=ahead["depth"]).any()
    with make_env(
        "SteppingStones-v0", {**settings, "gap_m": (0.0, 0.0), "stone_width_m": 0.4}
    ) as env:
        view = env.reset(seed=3)[0]
        assert (view["depth"] > 0.6).any()  # beside the stones
        assert not gap_edges(view["depth"], ahead=ahead["depth"]).any()


@pytest.mark.parametrize(
    ("kept", "edges_kept", "past_kept"),
    [([(0, 1)], 1.0, 0.5), ([(0, 0)], 0.0, 0.0), ([(0, 1), (1, 0)], 0.5, 0.5)],
)
def test_shares_of_what_is_kept_and_chance(kept, edges_kept, past_kept):
    found = gaze(Keeps(*kept), [{"depth": image()}])
    assert found.edges_kept == edges_kept
    assert found.edges == 1 / 4
    assert found.past_kept == past_kept
    assert found.past == pytest.approx(6 / 16)


@pytest.mark.parametrize(("kept", "share"), [([(0, 1)], 0.5), ([(0, 0)], 0.0)])
def test_shares_of_what_a_distraction_changed(kept, share):
    before = image()
    before[0, :2, 3] = STONE
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


@pytest.mark.records
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
    page = (out / "report.html").read_text()
    assert "Gaze of the policies" in page
    assert "from one pixel to the next ahead" in page
    assert conduct(path, out) == 0
