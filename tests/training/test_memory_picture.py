"""Films of policies that remember the ground: a map below the frame, and other films unchanged."""

import gymnasium
import numpy as np
import pytest

import envs
import policies
from policies.place_memory.remembered import RememberedGround
from training.video.overlays import (
    DIMMED,
    HOLE,
    MARGIN,
    STONE,
    Inset,
    compose,
    ground_image,
    with_memory,
)
from training.video.scene import Scene

FRONT = {"cameras": ("front",), "front_camera": {"pitch_deg": 45}, "episode_s": 1.0}
FEET = np.array([[0.3, -0.1], [0.3, 0.1], [-0.14, -0.1], [-0.14, 0.1]], np.float32)


def ground(rows=1, hole_m=(0.5, 0.6), seen_m=(0.2, 0.8)):
    """A gap across the path, a part of which the camera sees."""
    forward_m = np.arange(-80, 91, dtype=np.float32) / 100
    left_m = (np.arange(rows, dtype=np.float32) - rows // 2) / 100

    def between(ends_m):
        return np.tile((forward_m >= ends_m[0]) & (forward_m < ends_m[1]), (rows, 1))

    shares = between(hole_m).astype(np.float32)
    return RememberedGround(forward_m, left_m, shares, between(seen_m), FEET, 0.2)


class Plain:
    """A policy of which nothing is shown but what it sees."""


@pytest.fixture(scope="module")
def stones():
    made = gymnasium.make(envs.STEPPING_STONES, render_mode="rgb_array", **FRONT)
    yield made
    made.close()


def test_holes_are_blue_and_what_is_out_of_sight_is_dark():
    drawn = ground_image(ground(hole_m=(0.0, 0.5))).astype(int)[0]
    for at_m, colour in ((-0.3, DIMMED * STONE), (0.6, STONE), (0.1, DIMMED * HOLE), (0.3, HOLE)):
        assert drawn[round(100 * at_m) + 80].tolist() == colour.astype(int).tolist()


def test_left_of_the_robot_is_up():
    one = ground(rows=61)
    one.shares[:] = (one.left_m > 0.1)[:, None]
    drawn = ground_image(one).astype(int)
    assert (drawn[:20, :, 2] > 1.5 * drawn[:20, :, 0]).all()
    assert (drawn[21:, :, 0] > drawn[21:, :, 2]).all()


@pytest.mark.parametrize("rows", [1, 61])
def test_the_map_lies_below_the_frame_to_scale(rows):
    frame = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)
    drawn = with_memory(frame, ground(rows))
    assert (drawn[:480] == frame).all()
    assert drawn.shape[0] % 16 == 0
    assert drawn.shape[1:] == (640, 3)
    middle = drawn[480 + 55].astype(int)
    blue = np.flatnonzero(middle[:, 2] > 1.5 * middle[:, 0])
    scale = (640 - 4 * MARGIN) / 1.7
    ends = [2 * MARGIN + scale * (0.8 + at_m) for at_m in (0.5, 0.6)]
    assert [blue[0], blue[-1]] == pytest.approx(ends, abs=4)
    assert len(blue) == pytest.approx(0.1 * scale, abs=5)


def test_a_narrow_frame_and_one_whose_camera_is_dark_are_drawn():
    dark = ground(seen_m=(0, 0))
    lit = with_memory(np.zeros((240, 320, 3), np.uint8), ground())
    drawn = with_memory(np.zeros((240, 320, 3), np.uint8), dark)
    assert drawn.shape == lit.shape
    assert (drawn != lit).any()


def test_a_film_shows_what_is_remembered_below_what_others_show(stones):
    policy = policies.build_for({"name": "place_memory"}, stones)
    observation, _ = stones.reset(seed=8)
    for _ in range(12):
        policy.act(observation)
        last = observation
        observation = stones.step(stones.unwrapped.expert_action())[0]
    scene = Scene(stones)
    shown = scene.frame(last, policy, "0.60 s")
    assert (shown[:480] == scene.frame(last, Plain(), "0.60 s")).all()
    expected = with_memory(shown[:480], policy.remembered(last))
    assert (shown == expected).all()
    policy.reset()
    fresh = scene.frame(last, policy, "0.60 s")
    assert fresh.shape == shown.shape
    assert (fresh[480:] != shown[480:]).any(-1).sum() > 500


def test_any_policy_that_tells_what_it_remembers_is_drawn_so(stones):
    observation, _ = stones.reset(seed=8)
    scene, told, silent = Scene(stones), Plain(), Plain()
    told.remembered, silent.remembered = lambda seen: ground(), lambda seen: None
    plain = scene.frame(observation, Plain(), "")
    assert (scene.frame(observation, told, "") == with_memory(plain, ground())).all()
    assert np.array_equal(scene.frame(observation, silent, ""), plain)


def test_films_of_other_policies_are_as_they_were(stones):
    policy = policies.build_for({"controller": "mlp", "keep": 0.25}, stones)
    observation, _ = stones.reset(seed=8)
    policy.act(observation)
    scene = Scene(stones)
    white, black = envs.find_task(envs.STEPPING_STONES).shown
    bright = 255 * np.clip((observation["depth"][0] - black) / (white - black), 0, 1)
    picture = np.repeat(bright.astype(np.uint8)[..., None], 3, -1)
    kept = policy.attention_mask(observation).reshape(24, 32)
    expected = compose(stones.render(), [Inset("front", picture, kept)], "0.05 s")
    assert np.array_equal(scene.frame(observation, policy, "0.05 s"), expected)
