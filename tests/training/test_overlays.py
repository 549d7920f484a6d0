"""Drawings on frames: bright where attention is, and the memory of the ground below the frame."""

import gymnasium
import numpy as np
import pytest

import envs
import policies
from policies.place_memory.remembered import RememberedGround
from training.video.overlays import (
    DIMMED,
    HOLE,
    LEAST_SHARE,
    MARGIN,
    STONE,
    Inset,
    compose,
    ground_image,
    heat_image,
    side_by_side,
    with_memory,
)
from training.video.scene import Scene

RNG = np.random.default_rng(0)
FRONT = {"cameras": ("front",), "front_camera": {"pitch_deg": 45}, "episode_s": 1.0}
FEET = np.array([[0.3, -0.1], [0.3, 0.1], [-0.14, -0.1], [-0.14, 0.1]], np.float32)


def test_attention_lights_its_place_and_the_rest_is_dimmed():
    image, attention = np.full((40, 40, 3), 120, np.uint8), np.full((40, 40), 1e-6, np.float32)
    attention[10:20, 30:40] = 1.0
    bright = heat_image(image, attention).mean(-1)
    assert (image == 120).all()
    assert bright[10:20, 30:40].min() > 120
    assert bright[attention < 1].max() < 60
    assert heat_image(image, np.zeros((40, 40))).shape == image.shape


def test_more_attention_is_brighter_whatever_its_sum():
    image, shares = np.full((1, 64, 3), 90, np.uint8), np.geomspace(1e-3, 100.0, 64)[None]
    bright = heat_image(image, shares).mean(-1)[0]
    assert (np.diff(bright) >= 0).all()
    assert (bright[shares[0] / shares.mean() < LEAST_SHARE] == bright[0]).all()
    assert bright[-1] > bright[0] + 80
    np.testing.assert_array_equal(heat_image(image, shares), heat_image(image, shares * 1e-3))


@pytest.mark.parametrize(("size", "attended"), [(50, True), (500, False), (1000, True)])
def test_the_image_stands_left_untouched_and_sides_suit_video_codecs(size, attended):
    image = RNG.integers(0, 256, (size, size, 3), np.uint8)
    frame = side_by_side(image, np.ones((size, size)) if attended else None, "0.10 s")
    assert frame.shape[0] % 16 == frame.shape[1] % 16 == 0
    scale = 1 if size >= 400 else 8
    gap = (frame.shape[1] - (1 + attended) * scale * size) // (2 + attended)
    left = frame[6 : 6 + scale * size, gap : gap + scale * size]
    np.testing.assert_array_equal(left, image.repeat(scale, 0).repeat(scale, 1))
    below = frame[6 + scale * size :]
    assert (below > 200).any()
    scale_is_drawn = (below[:, frame.shape[1] // 2 :] > 100).any()
    assert scale_is_drawn == attended


def ground(rows=1, hole_m=(0.5, 0.6), seen_m=(0.2, 0.8)):
    """A gap across the path, a part of which the camera sees."""
    forward_m = np.arange(-80, 91, dtype=np.float32) / 100
    left_m = (np.arange(rows, dtype=np.float32) - rows // 2) / 100

    def between(ends_m):
        return np.tile((forward_m >= ends_m[0]) & (forward_m < ends_m[1]), (rows, 1))

    shares = between(hole_m).astype(np.float32)
    return RememberedGround(forward_m, left_m, shares, between(seen_m), FEET, 0.2)


class Plain:
    """A policy of which only the images are shown."""


@pytest.fixture(scope="module")
def stones():
    made = gymnasium.make(envs.STEPPING_STONES, render_mode="rgb_array", **FRONT)
    yield made
    made.close()


def test_holes_are_blue_places_out_of_view_dark_and_left_is_up():
    drawn = ground_image(ground(hole_m=(0.0, 0.5))).astype(int)[0]
    for at_m, colour in ((-0.3, DIMMED * STONE), (0.6, STONE), (0.1, DIMMED * HOLE), (0.3, HOLE)):
        assert drawn[round(100 * at_m) + 80].tolist() == colour.astype(int).tolist()
    one = ground(rows=61)
    one.shares[:] = (one.left_m > 0.1)[:, None]
    drawn = ground_image(one).astype(int)
    assert (drawn[:20, :, 2] > 1.5 * drawn[:20, :, 0]).all()
    assert (drawn[21:, :, 0] > drawn[21:, :, 2]).all()


@pytest.mark.parametrize("rows", [1, 61])
def test_the_map_lies_below_the_frame_to_scale(rows):
    frame = RNG.integers(0, 255, (480, 640, 3), np.uint8)
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
    unseen = with_memory(frame[:, :320], ground(rows, seen_m=(0, 0)))
    assert (unseen != with_memory(frame[:, :320], ground(rows))).any()


def test_a_frame_shows_what_is_remembered_below_what_others_show(stones):
    policy = policies.build_for({"name": "place_memory"}, stones)
    observation, _ = stones.reset(seed=8)
    for _ in range(12):
        policy.act(observation)
        last = observation
        observation = stones.step(stones.unwrapped.expert_action())[0]
    scene = Scene(stones)
    shown, plain = (scene.frame(last, one, "0.60 s") for one in (policy, Plain()))
    assert (shown == with_memory(plain, policy.remembered(last))).all()
    policy.reset()
    fresh = scene.frame(last, policy, "0.60 s")
    assert fresh.shape == shown.shape
    assert (fresh[480:] != shown[480:]).any(-1).sum() > 500
    silent = Plain()
    silent.remembered = lambda seen: None
    assert np.array_equal(scene.frame(last, silent, "0.60 s"), plain)


def test_frames_of_policies_without_memory_are_insets(stones):
    policy = policies.build_for({"controller": "mlp", "keep": 0.25}, stones)
    observation, _ = stones.reset(seed=8)
    policy.act(observation)
    white, black = envs.find_task(envs.STEPPING_STONES).shown
    bright = 255 * np.clip((observation["depth"][0] - black) / (white - black), 0, 1)
    image = np.repeat(bright.astype(np.uint8)[..., None], 3, -1)
    kept = policy.attention_mask(observation).reshape(24, 32)
    expected = compose(stones.render(), [Inset("front", image, kept)], "0.05 s")
    assert np.array_equal(Scene(stones).frame(observation, policy, "0.05 s"), expected)
