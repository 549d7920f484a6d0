"""Stones to the sides of a straight path, and of irregular outline."""

import gymnasium
import numpy as np
import pytest

from envs.cameras import CameraConfig, DepthCameras
from envs.stepping_stones import SteppingStonesConfig
from envs.stepping_stones.course import draw_course
from envs.stepping_stones.distraction import draw_clutter
from envs.stepping_stones.env import SteppingStonesEnv
from envs.stepping_stones.terrain import FLOOR_M, draw_stones
from envs.stepping_stones.turned_stones import lay_irregular_stones
from tests.pairwise import pairwise

LIFT_OFF = {"decide": "lift_off", "action_legs": "lifting"}
BOTH = {"stone_aside_m": 0.1, "stone_turn_deg": 20.0}
GAP_M = (0.08, 0.16)


@pytest.mark.parametrize(("aside_m", "turn_deg", "seed"), pairwise((0.0, 0.1), (5.0, 20.0), (0, 1)))
def test_stones_are_those_of_the_straight_row_moved_and_turned(aside_m, turn_deg, seed):
    """The first is not, and every other differs from it by no more than the settings allow."""
    config = SteppingStonesConfig(stone_aside_m=aside_m, stone_turn_deg=turn_deg)
    row = draw_stones(config, GAP_M, np.random.default_rng(seed)).edges_m
    found = lay_irregular_stones(config, GAP_M, np.random.default_rng(seed))
    assert np.array_equal(found.edges_m[::2], row)
    assert np.array_equal(found.centre_m[::2], found.centre_m[1::2])
    assert np.allclose(found.centre_m[::2, 0], row.mean(1))
    aside, turned = np.abs(found.centre_m[:, 1]), np.degrees(np.abs(found.yaw_rad))
    assert aside.max() <= aside_m
    assert turned.max() <= turn_deg
    assert not aside[:2].any()
    assert not turned[:2].any()
    assert aside[2:].any() == (aside_m > 0)
    assert turned[2:].all()


@pytest.mark.parametrize("seed", range(2))
def test_margin_physics_and_depth_agree_on_where_a_stone_is(seed):
    """At random points, except for those within 2 mm of an edge."""
    env = SteppingStonesEnv(**BOTH, gap_m=GAP_M, stone_width_m=0.6)
    try:
        env.reset(seed=seed)
        x, y = np.random.default_rng(seed).uniform((0.4, -0.5), (5.0, 0.5), (400, 2)).T
        points = np.column_stack([x, y])
        margin = env._stones.margin_m(points)
        clear = np.abs(margin) > 0.002
        above, below = (np.column_stack([points, np.full(len(x), z)]).tolist() for z in (1, -1))
        hits = env._client.rayTestBatch(above, below)
        assert np.array_equal([hit[0] >= 0 for hit in hits] & clear, (margin > 0) & clear)
        camera = CameraConfig(position_m=(0, 0, 0), fov_deg=10, height_px=5, width_px=5)
        eye, level = DepthCameras([camera], 1.5), np.eye(3)
        depth_m = [
            eye.render(np.array([*p, 0.4]), level, *env._all_boxes[:2], FLOOR_M, env._all_boxes[2])
            for p in points
        ]
        seen = np.array([image[0, 2, 2] for image in depth_m]) < 0.6
        assert np.array_equal(seen & clear, (margin > 0) & clear)
        assert 0.3 < (margin > 0).mean() < 0.9
    finally:
        env.close()


def test_the_expert_walks_and_the_middle_is_that_of_the_stones():
    settings = {**LIFT_OFF, **BOTH, "stone_turn_deg": 10.0, "stone_width_m": 0.6, "gap_m": GAP_M}
    env = SteppingStonesEnv(**settings, centre_reward=1.0, episode_s=4.0)
    try:
        env.reset(seed=100000)
        ended = False
        while not ended:
            *_, fell, late, info = env.step(env.expert_action())
            ended = fell or late
        assert info["distance_m"] > 1.5
        assert not fell
        stones = env._stones.centre_m
        assert all(abs(env._course.aside_m(np.array([*c, 0.4]))) < 1e-9 for c in stones)
        assert env.mirror is not None
    finally:
        env.close()


def test_clutter_follows_the_middle():
    config = SteppingStonesConfig(stone_aside_m=0.1)
    course = draw_course(config, GAP_M, np.random.default_rng(0))
    clutter = draw_clutter(10, course.stones, np.random.default_rng(1))
    low, high, turns = course.boxes(clutter)
    middle, stones = (low + high) / 2, len(course.stones.yaw_rad)
    aside = [abs(course.aside_m(point)) for point in middle[stones:]]
    assert min(aside) > config.stone_width_m / 2
    assert not turns[stones:].any()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"stone_aside_m": 0.1, "path_turn": "left"}, "need a straight path.*path_turn = left"),
        ({"stone_turn_deg": 9, "felt_ground": {"world": "vectors"}}, "felt_ground.world = vectors"),
        ({"stone_turn_deg": 9, "walk_back": True, "episode_s": 20.0}, "walk_back = true"),
        ({"stone_aside_m": 0.1, "margin_across": True}, "margin_across must be false"),
        ({"stone_turn_deg": 31}, "stone_turn_deg"),
        ({"stone_aside_m": -0.1}, "stone_aside_m"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        gymnasium.make("SteppingStones-v0", **settings)
