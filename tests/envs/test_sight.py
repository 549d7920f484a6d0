"""Camera settings, and the camera geometry that an environment provides."""

import gymnasium
import numpy as np
import pytest

from envs.cameras import CameraConfig, ray_directions
from tests.envs import episodes, sweeps

FINE = {"height_px": 96, "width_px": 128}
MOVED = {
    "position_m": (0.25, 0.05, -0.1),
    "pitch_deg": 60.0,
    "yaw_deg": 20.0,
    "roll_deg": -15.0,
    "fov_deg": 60.0,
    "height_px": 48,
    "width_px": 64,
}


def quiet(**settings):
    return episodes.make(sensor_noise=0.0, **settings)


@pytest.mark.parametrize("changes", [{}, MOVED, FINE, {"width_along": "lateral", "yaw_deg": 180.0}])
def test_a_stones_edge_is_seen_where_the_geometry_says(changes):
    """Along a ray that the geometry gives, depth is that of the stone's top on one side of its edge
    and of the floor on the other."""
    with quiet(cameras=("front",), front_camera=changes) as env:
        depth, world = env.reset(seed=2)[0]["depth"][0], env.unwrapped
        geometry, state, stones = world.geometry, world._state, world._stones
    rays, place = geometry.rays["depth"][0], geometry.positions_m["depth"][0]
    assert rays.shape == (*depth.shape, 3)
    eye, rays = state.position_m + state.rotation @ place, rays @ state.rotation.T
    down = rays[..., 2] < -0.3
    top = eye + rays * (-eye[2] / np.where(down, rays[..., 2], -1))[..., None]
    margin = np.minimum(stones.margin_m(top[..., 0]), stones.width_m / 2 - np.abs(top[..., 1]))
    sure = down & (np.abs(margin) > 0.005)
    on_stone = sure & (margin > 0) & (np.linalg.norm(top - eye, axis=-1) < 1.2)
    assert on_stone.sum() > 50
    np.testing.assert_allclose((eye + depth[..., None] * rays)[on_stone], top[on_stone], atol=1e-4)
    beyond = sure & (margin < 0)
    assert (depth[beyond] > (np.linalg.norm(top - eye, axis=-1) / np.linalg.norm(rays, axis=-1))[beyond]).all()  # fmt: skip  # noqa: E501


def test_yaw_turns_left_and_roll_clockwise():
    level = CameraConfig(pitch_deg=0.0, width_along="lateral", height_px=5, width_px=5)
    middle = (2, 2)
    left = ray_directions(CameraConfig(pitch_deg=0.0, yaw_deg=90.0, height_px=5, width_px=5))
    np.testing.assert_allclose(left[middle], [0, 1, 0], atol=1e-12)
    rolled = ray_directions(
        CameraConfig(pitch_deg=0, roll_deg=90, width_along="lateral", height_px=5, width_px=5)
    )
    upper = ray_directions(level)[0, 2] - ray_directions(level)[middle]
    assert upper[2] > 0
    turned = rolled[0, 2] - rolled[middle]  # what was above is to the right
    np.testing.assert_allclose(turned, [0, -upper[2], 0], atol=1e-12)


def test_cameras_are_named_in_their_order():
    with (
        quiet(cameras=("belly", "front")) as turned,
        quiet() as usual,
        quiet(cameras=("belly",)) as one,
    ):
        both = usual.reset(seed=1)[0]["depth"]
        np.testing.assert_array_equal(turned.reset(seed=1)[0]["depth"], both[::-1])
        np.testing.assert_array_equal(one.reset(seed=1)[0]["depth"], both[1:])
        assert one.unwrapped.geometry.cameras == {"depth": ("belly",)}


def test_cameras_of_several_sizes_have_an_entry_each():
    tail = {"position_m": (-0.3, 0.0, -0.1), "yaw_deg": 180.0, **FINE}
    settings = {
        "cameras": ("front", "tail"), "extra_cameras": {"tail": tail}, "depth_false_returns": 0.1,
        "clutter_per_m": 5.0, "episode_s": 0.2,
    }  # fmt: skip
    with episodes.make(**settings) as env:
        observation, _ = env.reset(seed=0)
        again, _ = env.reset(seed=0)
        geometry = env.unwrapped.geometry
    shapes = {key: part.shape for key, part in observation.items()}
    assert shapes == {"depth_front": (24, 32), "depth_tail": (96, 128), "proprio": (45,)}
    assert all((observation[key] == again[key]).all() for key in observation)
    assert {key: rays.shape for key, rays in geometry.rays.items()} == {
        "depth_front": (24, 32, 3), "depth_tail": (96, 128, 3),
    }  # fmt: skip
    assert geometry.positions_m["depth_tail"].tolist() == [-0.3, 0.0, -0.1]


@pytest.mark.parametrize("kind", ["depth_false_returns", "depth_dropped_blocks"])
def test_distractors_cover_the_same_share_of_a_fine_image(kind):
    shares = []
    for size in ({}, FINE):
        with (
            quiet(front_camera=size, belly_camera=size, **{kind: 0.1}) as lying,
            quiet(front_camera=size, belly_camera=size) as honest,
        ):
            seeds = range(20)
            pairs = [[env.reset(seed=s)[0]["depth"] for env in (lying, honest)] for s in seeds]
            shares.append(np.mean([(a != b).mean() for a, b in pairs]))
    assert shares == pytest.approx([0.1, 0.1], abs=0.03)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cameras": ()}, "cameras = .*at least 1"),
        ({"cameras": ("front", "front")}, "distinct names of belly, front, got front, front"),
        ({"cameras": ("tail",)}, "distinct names of belly, front, got tail"),
        ({"cameras": "front"}, "cameras = 'front', but input should be a valid tuple"),
        ({"extra_cameras": {"tail": {}}}, "cameras must name tail, which extra_cameras has"),
        ({"extra_cameras": {"front": {}}}, "none of them front or belly, got 'front'"),
        ({"extra_cameras": {"A b": {}}}, "small letters, digits and _, .* got 'A b'"),
        ({"extra_cameras": {"tail": {"pitch": 1}}}, "'extra_cameras.tail.pitch'; .*pitch_deg"),
    ],
)
def test_cameras_that_make_no_sense_are_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make("SteppingStones-v0", **settings)


SIDE = {"eye_m": (1.0, 0.4, 1.0), "height_px": 240, "width_px": 300, "fov_deg": 60.0}


def test_the_sweep_has_an_image_of_every_camera():
    with sweeps.make(images=True, image_px=250, balls=8, extra_cameras={"side": SIDE}) as env:
        observation, _ = env.reset(seed=3)
        assert env.observation_space.contains(observation)
        geometry, balls_m = env.unwrapped.geometry, env.unwrapped._balls_m
        bowls_m = env.unwrapped._scene.bowls_m
    assert observation["rgb_side"].shape == (240, 300, 3)
    for key in ("rgb", "rgb_side"):
        picture, rays = observation[key].astype(int), geometry.rays[key]
        assert rays.shape == picture.shape
        reds = [pixel(rays, geometry.positions_m[key], ball) for ball in balls_m]
        assert np.mean([picture[place] @ [1, -1, -1] > 60 for place in reds]) > 0.7, key
        for bowl in bowls_m:
            place = pixel(rays, geometry.positions_m[key], [*bowl, 0.012])
            assert picture[place] @ [-1, 1, -1] > 20, key


def pixel(rays, eye, point):
    """The pixel whose ray passes nearest to a point."""
    towards = np.subtract(point, eye)
    cosines = rays @ towards / np.linalg.norm(rays, axis=-1)
    return np.unravel_index(cosines.argmax(), rays.shape[:2])


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({"eye_m": (0, 0, 5)}, r"extra_cameras.side.eye_m must be 0.35 to 2.6 m from its target_m"),
        ({"eye_m": (0, 0, 1)}, "extra_cameras.side.eye_m must not be straight above"),
        ({"fov": 3}, "'extra_cameras.side.fov'; .*fov_deg"),
    ],
)
def test_a_camera_of_the_sweep_that_sees_nothing_is_one_sentence(camera, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make("BimanualSweep-v0", extra_cameras={"side": camera})
