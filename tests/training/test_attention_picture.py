"""A picture under attention: bright where attention is, and files that players can show."""

import numpy as np
import pytest

from training.video.overlays import LEAST_SHARE, MOST_SHARE, heat_image, side_by_side

RNG = np.random.default_rng(0)


def brightness(picture):
    return picture.astype(float).mean(-1)


def test_attention_lights_its_place_and_the_rest_is_dimmed():
    picture = np.full((40, 40, 3), 120, np.uint8)
    attention = np.full((40, 40), 1e-6, np.float32)
    attention[10:20, 30:40] = 1.0
    lit = heat_image(picture, attention)
    assert lit.dtype == np.uint8
    assert (picture == 120).all()
    assert brightness(lit)[10:20, 30:40].min() > 120
    rest = brightness(lit)
    rest[10:20, 30:40] = 0
    assert rest.max() < 60


def test_more_attention_is_brighter_whatever_its_sum():
    picture = np.full((1, 64, 3), 90, np.uint8)
    shares = np.geomspace(1e-3, 100.0, 64)[None]
    bright = brightness(heat_image(picture, shares))[0]
    assert (np.diff(bright) >= 0).all()
    multiples = shares[0] / shares.mean()
    assert (bright[multiples < LEAST_SHARE] == bright[0]).all()
    assert bright[-1] > bright[0] + 80
    assert multiples.max() < MOST_SHARE
    np.testing.assert_array_equal(heat_image(picture, shares), heat_image(picture, shares * 1e-3))


def test_even_attention_and_none_at_all():
    picture = RNG.integers(0, 256, (8, 8, 3), np.uint8)
    for nothing in (np.ones((8, 8)), np.zeros((8, 8))):
        assert heat_image(picture, nothing).shape == (8, 8, 3)


@pytest.mark.parametrize("size", [50, 500, 1000])
@pytest.mark.parametrize("attended", [False, True])
def test_the_picture_stands_left_untouched_and_sides_suit_video_codecs(size, attended):
    picture = RNG.integers(0, 256, (size, size, 3), np.uint8)
    frame = side_by_side(picture, np.ones((size, size)) if attended else None, "0.10 s")
    assert frame.dtype == np.uint8
    assert frame.shape[0] % 16 == frame.shape[1] % 16 == 0
    scale = 1 if size >= 400 else 8
    enlarged = picture.repeat(scale, 0).repeat(scale, 1)
    gap = (frame.shape[1] - (1 + attended) * scale * size) // (2 + attended)
    left = frame[6 : 6 + scale * size, gap : gap + scale * size]
    np.testing.assert_array_equal(left, enlarged)
    below = frame[6 + scale * size :]
    assert (below > 200).any()
    assert frame.shape[1] > (1 + attended) * scale * size


def test_the_scale_is_drawn_only_beside_attention():
    picture = np.zeros((500, 500, 3), np.uint8)
    alone, beside = side_by_side(picture), side_by_side(picture, np.ones((500, 500)))
    assert not (alone > 30).any()
    assert (beside[510:, 512:].max(-1) > 200).any()
