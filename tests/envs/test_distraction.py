"""Distractors in depth images: amount, duration and seeds; nothing else changes."""

import numpy as np
import pytest

from envs.stepping_stones.distraction import Blackouts, Distraction, draw_clutter
from envs.stepping_stones.terrain import FLOOR_M, Stones
from tests.envs.episodes import expert, make

FAR_M = 1.5
ALL = {"depth_false_returns": 0.2, "depth_dropped_blocks": 0.2, "clutter_per_m": 5.0}
ROW = Stones(np.array([[-0.6, 0.4], [0.6, 1.2], [1.3, 2.0]]), 0.5)


def pictures(false_returns=0.0, dropped_blocks=0.0, count=600, seed=0):
    """Lying images of level ground at 0.4 m, (count, 2, 24, 32)."""
    true = np.full((2, 24, 32), 0.4, np.float32)
    lies = Distraction(false_returns, dropped_blocks, FAR_M, np.random.default_rng(seed))
    return np.stack([lies.depth(true) for _ in range(count)])


def walk(steps=12, seed=1, **settings):
    """Observations of the expert's rollout, by key; the expert does not use images."""
    with make(**settings) as env:
        seen = [env.reset(seed=seed)[0]]
        seen += [env.step(expert(env))[0] for _ in range(steps)]
    return {key: np.stack([observation[key] for observation in seen]) for key in seen[0]}


@pytest.fixture(scope="module")
def honest():
    return walk()


@pytest.mark.parametrize("kind", ["false_returns", "dropped_blocks"])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_the_share_of_lying_pixels_is_as_asked_everywhere(kind, share):
    """Images of one seed; a standard error of the mean over them is below 0.01."""
    lying = pictures(**{kind: share}) != np.float32(0.4)
    assert lying.mean() == pytest.approx(share, abs=0.03)
    corner, centre = lying[:, :, :3, :3].mean(), lying[:, :, 10:14, 14:18].mean()
    assert [corner, centre] == pytest.approx([share] * 2, abs=0.06)


def test_what_the_lies_report():
    false = pictures(false_returns=0.1)
    false = false[false != np.float32(0.4)]
    assert 0.2 <= false.min() < 0.21
    assert 1.45 < false.max() <= FAR_M
    nearer = np.log(2) / np.log(2 * FAR_M / 0.4)  # log-uniform from 0.2 to far
    assert (false < 0.4).mean() == pytest.approx(nearer, abs=0.03)
    dropped = pictures(dropped_blocks=0.1)
    assert set(np.unique(dropped)) == {np.float32(0.4), np.float32(FAR_M)}


def test_false_returns_are_new_in_every_image_and_blocks_stay_for_five():
    """A pixel is false again in the next image by chance, or because its patch stayed."""
    for kind, stays in (("false_returns", 0.0), ("dropped_blocks", 0.8)):
        lying = pictures(**{kind: 0.05}, count=2000) != np.float32(0.4)
        again = (lying[1:] & lying[:-1]).sum() / lying[:-1].sum()
        assert again == pytest.approx(stays + (1 - stays) * 0.05, abs=0.03)


def test_without_distraction_an_image_is_scene_and_noise():
    """Noise for a seed does not change, since distractors draw from separate streams."""
    with make() as env:
        seen = env.reset(seed=1)[0]["depth"]
        true = env.unwrapped
        state, stones = true._state, true._stones
        scene = true._sight._cameras["depth"].render(
            state.position_m, state.rotation, stones.low_m, stones.high_m, FLOOR_M
        )
    rng = np.random.default_rng(1)
    rng.standard_normal(4 * 3 + 30)  # start posture, then proprioception
    noise = rng.standard_normal(scene.shape, dtype=np.float32)
    expected = np.clip(scene + np.float32(0.005) * noise, 0.0, FAR_M)
    np.testing.assert_array_equal(seen, expected)


def test_distractors_change_only_the_images(honest):
    """Stones, noise, steps and falls do not depend on the images."""
    for kind, strength in ALL.items():
        lying = walk(**{kind: strength})
        np.testing.assert_array_equal(lying["proprio"], honest["proprio"])
        same = lying["depth"] == honest["depth"]
        assert 0.5 < same.mean() < 0.98
        assert not same.all(axis=(2, 3)).any()  # each image of both cameras lies


def test_one_lie_does_not_change_another():
    alone, both = pictures(0.2, 0.0, count=20), pictures(0.2, 0.2, count=20)
    np.testing.assert_array_equal(both[both != FAR_M], alone[both != FAR_M])


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_blackouts_are_as_long_and_as_frequent_as_asked(share):
    """Of 20,000 images; a standard error of the share is below 0.012."""
    times = Blackouts(share, 10, np.random.default_rng(0))
    dark = np.array([times.next() for _ in range(20_000)])
    assert not dark[0]
    assert dark.mean() == pytest.approx(share, abs=0.04)
    turns = np.flatnonzero(np.diff(dark.astype(int)))
    lengths = np.diff(turns)[::2]  # the first turn is into the dark
    assert (lengths % 10 == 0).all()  # two that follow each other at once are one of 20


def test_a_blackout_darkens_all_cameras_and_changes_nothing_else(honest):
    settings = {"depth_blackouts": 0.3, "depth_blackout_s": 0.1, "depth_false_returns": 0.1}
    lying, dark = walk(depth_false_returns=0.1), walk(**settings)
    np.testing.assert_array_equal(dark["proprio"], honest["proprio"])
    nothing = (dark["depth"] == np.float32(FAR_M)).all(axis=(1, 2, 3))
    assert 0 < nothing.sum() < len(nothing)
    np.testing.assert_array_equal(dark["depth"][~nothing], lying["depth"][~nothing])


def test_clutter_stands_beside_the_stones_on_both_sides():
    low, high = draw_clutter(40.0, ROW, np.random.default_rng(0))
    assert len(low) == 104  # 2.6 m
    assert (low < high).all()
    assert (low[:, 2] == FLOOR_M).all()
    left, right = low[:, 1] >= 0.25, high[:, 1] <= -0.25
    assert (left ^ right).all()
    assert 30 < left.sum() < 74
    assert ((low[:, 0] + high[:, 0]) / 2 >= -0.6).all()
    assert ((low[:, 0] + high[:, 0]) / 2 <= 2.0).all()
    assert high[:, 2].min() < -0.1 < 0.0 < high[:, 2].max() <= 0.1


def test_more_clutter_holds_the_boxes_of_less():
    few, many = (draw_clutter(n, ROW, np.random.default_rng(0)) for n in (5.0, 20.0))
    assert len(few[0]) == 13
    for less, more in zip(few, many, strict=True):
        np.testing.assert_array_equal(less, more[:13])


def test_clutter_is_an_image_and_no_body(honest):
    with make(clutter_per_m=20.0) as env, make() as plain:
        for each in (env, plain):
            each.reset(seed=1)
        bodies = [each.unwrapped._client.getNumBodies() for each in (env, plain)]
    assert bodies[0] == bodies[1]
    seen = walk(clutter_per_m=20.0)["depth"]
    hidden = seen < honest["depth"] - 0.1
    assert 0.05 < hidden.mean() < 0.3
    beside, middle = hidden[..., [0, 1, -2, -1], :].mean(), hidden[..., 10:14, :].mean()
    assert beside > 0.3
    assert middle == 0


def test_both_cameras_see_the_same_clutter():
    """Every point that hides a part of the true scene lies on a box, for every camera."""
    with make(sensor_noise=0.0, clutter_per_m=20.0) as env:
        seen = env.reset(seed=1)[0]["depth"]
        true = env.unwrapped
        state, cameras, stones = true._state, true._sight._cameras["depth"], true._stones
        low, high = (x[len(stones.edges_m) :, None] for x in (true._low_m, true._high_m))
        plain = cameras.render(
            state.position_m, state.rotation, stones.low_m, stones.high_m, FLOOR_M
        )
    place = state.position_m + cameras._positions @ state.rotation.T
    rays = (state.rotation @ cameras._directions).T.reshape(*seen.shape, 3)
    points = place[:, None, None] + seen[..., None] * rays
    boxes = []
    for camera in range(2):
        hit = points[camera][seen[camera] < plain[camera]]
        on = ((hit > low - 1e-4) & (hit < high + 1e-4)).all(-1)  # (boxes, points)
        assert on.any(0).all()
        boxes.append(set(np.flatnonzero(on.any(1))))
    assert len(boxes[0] & boxes[1]) >= 3


def test_the_strongest_lies_that_are_allowed():
    with make(depth_false_returns=0.9, depth_dropped_blocks=0.9, sensor_noise=10.0) as env:
        observation, _ = env.reset(seed=1)
        assert env.observation_space.contains(observation)
        assert env.observation_space.contains(env.step(expert(env))[0])
