"""Repair of depth images: true pixels stay, false ones are replaced, for any camera."""

from functools import cache

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import policies
from attention.components import current_component
from envs.cameras import CameraConfig, DepthCameras
from envs.stepping_stones.distraction import Distraction
from policies.common.depth_repair import DepthRepair
from policies.common.observation import Observations
from tests.policies.cases import ACTIONS, OBSERVATIONS, make, observation
from training.collect.episode import run_episode
from training.io import checkpoint

FAR_M = 1.5
SIZES = [(24, 32), (37, 50)]


@cache
def walk(height, width, pitch_deg=90.0, steps=60, speed_m=0.025, noise_m=0.005):
    """What two cameras see that rock and heave over stones and gaps, (steps, 2, height, width)."""
    places = ((0.2, 0.0, 0.0), (-0.1, 0.0, 0.0))
    cameras = DepthCameras(
        tuple(
            CameraConfig(position_m=p, pitch_deg=pitch_deg, height_px=height, width_px=width)
            for p in places
        ),
        FAR_M,
    )
    rng = np.random.default_rng(5)
    low = np.column_stack([np.arange(12) * 0.75 - 1, np.full(12, -0.25), np.full(12, -0.5)])
    high = low + np.array([0.6, 0.5, 0.5])
    seen = []
    for t in range(steps):
        pitch = 0.03 * np.sin(t)
        rotation = np.array(
            [[np.cos(pitch), 0, np.sin(pitch)], [0, 1, 0], [-np.sin(pitch), 0, np.cos(pitch)]]
        )
        place = np.array([speed_m * t, 0.01 * np.cos(t), 0.37 + 0.005 * np.sin(2 * t)])
        seen.append(cameras.render(place, rotation, low, high, -0.5))
    true = np.concatenate(seen).reshape(steps, 2, height, width)
    return (true + noise_m * rng.standard_normal(true.shape)).clip(0, FAR_M).astype(np.float32)


def lied(true, false_returns=0.0, dropped_blocks=0.0):
    lies = Distraction(false_returns, dropped_blocks, FAR_M, np.random.default_rng(1))
    return np.stack([lies.depth(pictures) for pictures in true])


def repair_of(kind, shape, dtype=np.float32, high=FAR_M, key="depth", layout=None):
    box = spaces.Box(0, high, shape, dtype)
    layouts = {} if layout is None else {key: layout}
    return DepthRepair(kind == "full", Observations(spaces.Dict({key: box}), layouts).image_parts)


def repaired(kind, pictures, layout="NHW"):
    repair = repair_of(kind, pictures.shape[1:], layout=layout)
    return np.stack([repair({"depth": one})["depth"] for one in pictures])


def wrong(found, true):
    """Share of the pixels that are off by 10 cm."""
    return float((np.abs(found - true) > 0.1).mean())


@pytest.mark.parametrize("size", SIZES)
def test_dropped_blocks_are_filled_by_what_is_around_them(size):
    true = walk(*size)
    reported = lied(true, dropped_blocks=0.1)
    assert 0.08 < wrong(reported, true) < 0.14
    filled = repaired("holes", reported)
    assert wrong(filled, true) < 0.015
    assert (filled < FAR_M).all()
    np.testing.assert_array_equal(filled[reported < FAR_M], reported[reported < FAR_M])


@pytest.mark.parametrize("size", SIZES)
def test_false_returns_and_dropped_blocks_go_by_time(size):
    true = walk(*size)
    reported = lied(true, false_returns=0.2, dropped_blocks=0.1)
    assert wrong(reported, true) > 0.2
    assert wrong(repaired("full", reported), true) < 0.05
    assert wrong(repaired("full", lied(true, false_returns=0.2)), true) < 0.04


@pytest.mark.parametrize("size", SIZES)
def test_what_is_true_stays_but_for_a_hundredth(size):
    true = walk(*size)
    np.testing.assert_array_equal(repaired("holes", true), true)
    found = repaired("full", true)
    assert (found != true).mean() < 0.02
    assert wrong(found, true) < 0.01


def test_what_comes_into_view_is_believed_when_it_is_seen_again():
    repair = repair_of("full", (24, 32))
    wall, box = np.full((2, 24, 32), 0.8, np.float32)
    box[8:16, 8:16] = 0.4
    seen = [repair({"depth": picture})["depth"] for picture in (wall, wall, box, box)]
    np.testing.assert_array_equal(seen[2], wall)
    np.testing.assert_array_equal(seen[3], box)


def test_an_image_of_which_all_is_lost_is_far_unless_one_came_before():
    wall, lost = np.float32([[[0.8]], [[np.nan]]]) * np.ones((24, 32), np.float32)
    holes, full = repair_of("holes", (24, 32)), repair_of("full", (24, 32))
    assert (holes({"depth": lost})["depth"] == FAR_M).all()
    full({"depth": wall})
    np.testing.assert_allclose(full({"depth": lost})["depth"], wall, rtol=1e-6)


@pytest.mark.parametrize("kind", ["holes", "full"])
def test_the_distance_is_no_hole(kind):
    """Looking ahead and up, most of the image is farther than the camera reaches."""
    true = walk(24, 32, pitch_deg=-15.0)
    assert 0.4 < (true[20:] >= FAR_M).mean() < 0.9
    found = repaired(kind, true)
    assert wrong(found[2:], true[2:]) < 0.02
    # A block in the middle of what is near goes all the same.
    reported = true.copy()
    reported[:, :, 20:23, 10:14] = FAR_M
    assert wrong(repaired(kind, reported)[2:, :, 20:23], true[2:, :, 20:23]) < 0.02


@pytest.mark.parametrize("nothing", [0, 5000])
def test_whole_millimetres_are_repaired_as_such(nothing):
    depth = np.full((24, 32), 740, np.uint16)
    depth[:, 16:] = 1200
    depth[4:9, 4:9] = depth[12:18, 20:26] = nothing
    repair = repair_of("holes", (24, 32), np.uint16, 5000)
    found = repair({"depth": depth})["depth"]
    assert found.dtype == np.uint16
    assert (found[:, :16] == 740).all()
    assert (found[:, 16:] == 1200).all()
    by_time = repair_of("full", (24, 32), np.uint16, 5000)
    for _ in range(3):
        np.testing.assert_array_equal(by_time({"depth": depth})["depth"], found)


@pytest.mark.parametrize(
    ("layout", "axes"), [("HW", ()), ("HWC", (1,)), ("CHW", (0,)), ("TCHW", (0, 0))]
)
def test_images_may_lie_in_any_order_of_axes(layout, axes):
    true = walk(24, 32, steps=8)[:, 0]
    reported = lied(true[:, None], 0.1, 0.1)[:, 0]
    expected = repaired("full", reported, "HW")
    shaped, right = reported, expected
    for axis in axes:
        axis = axis if axis == 0 else -1
        at = 1 if axis == 0 else shaped.ndim
        shaped, right = np.expand_dims(shaped, at), np.expand_dims(right, at)
    np.testing.assert_array_equal(repaired("full", shaped, layout), right)


def test_what_is_no_depth_is_left_alone_and_without_depth_repair_is_refused():
    grey = spaces.Box(0, 255, (24, 32), np.uint8)
    front = spaces.Box(0, FAR_M, (24, 32), np.float32)
    parts = Observations(spaces.Dict({"depth_front": front, "rgb": grey, "more": front}))
    repair = DepthRepair(False, parts.image_parts)
    seen = {"depth_front": np.full((24, 32), 0.5, np.float32), "rgb": np.zeros((24, 32), np.uint8)}
    seen["more"] = seen["depth_front"].copy()
    for picture in (seen["depth_front"], seen["more"]):
        picture[3, 3] = FAR_M
    found = repair(seen)
    assert found["depth_front"][3, 3] == np.float32(0.5)
    assert found["rgb"] is seen["rgb"]
    assert found["more"][3, 3] == FAR_M
    with pytest.raises(ValueError, match=r"repair must be none without depth images.* got rgb"):
        policies.build({"repair": "full"}, spaces.Dict({"rgb": grey}), ACTIONS)
    with pytest.raises(ValueError, match="repair = 'all'"):
        policies.build({"repair": "all"}, OBSERVATIONS, ACTIONS)


def test_a_policy_sees_repaired_images_and_forgets_them_with_the_episode():
    plain, mending = make(), make(repair="full")
    reported = lied(walk(24, 32, steps=12), 0.2, 0.1)
    seen = [{**observation(), "depth": pictures} for pictures in reported]
    repair = repair_of("full", (2, 24, 32), layout="NHW")
    mending.reset()
    actions = [mending.act(one) for one in seen]
    for one, action in zip(seen, actions, strict=True):
        np.testing.assert_array_equal(plain.act(one | repair(one)), action)
    assert any((plain.act(o) != a).any() for o, a in zip(seen, actions, strict=True))
    mending.reset()
    for one, action in zip(seen, actions, strict=True):
        np.testing.assert_array_equal(mending.act(one), action)


def test_looking_at_the_attention_changes_nothing():
    mending, watched = make(repair="full"), make(repair="full")
    seen = [{**observation(), "depth": one} for one in lied(walk(24, 32, steps=8), 0.2, 0.1)]
    for one in seen:
        watched.attention_mask(seen[0])
        np.testing.assert_array_equal(mending.act(one), watched.act(one))
        mask = watched.attention_mask(one)
        np.testing.assert_array_equal(mask, make().attention_mask(one | watched.repair.seen(one)))


def test_repairing_is_a_component_and_the_default_is_none():
    policy = make(repair="holes")
    inside, repair = [], policy.repair

    class Watched:
        def reset(self):
            repair.reset()

        def __call__(self, seen):
            inside.append(current_component())
            return repair(seen)

    policy.repair = Watched()
    policy.act(observation())
    assert inside == ["repair"]
    assert make().repair is None
    assert "repair" not in "".join(make(repair="full").state_dict())


@pytest.mark.records
@pytest.mark.parametrize(
    ("repair", "lies"),
    [("holes", {"depth_dropped_blocks": 0.1}), ("full", {"depth_false_returns": 0.2})],
)
def test_a_shipped_policy_walks_through_lies_that_it_falls_for_without(repair, lies):
    """Terrains on which the shipped policy completes without false returns, and falls with them."""
    torch.set_num_threads(1)
    with gymnasium.make("SteppingStones-v0", success_distance_m=2.0, episode_s=6.0, **lies) as env:
        for kind, succeeds in ((None, False), (repair, True)):
            name = checkpoint.resolve("stepping_stones_favor_256")
            policy, _ = checkpoint.load_policy(name, env, kind)
            assert run_episode(env, policy, 50_001).success is succeeds
