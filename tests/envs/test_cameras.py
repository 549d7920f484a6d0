"""Depth cameras: analytic scenes, image orientation, and PyBullet's own rays on real stones."""

import numpy as np
import pytest

from envs.bullet import BulletClient
from envs.cameras import CameraConfig, DepthCameras, ray_directions
from envs.stepping_stones import SteppingStonesConfig, SteppingStonesEnv
from envs.stepping_stones.robot import Laikago
from envs.stepping_stones.terrain import FLOOR_M, draw_stones

FAR_M = 1.5
NOTHING = np.zeros((0, 3))
TILTED = CameraConfig(position_m=(0.2, 0.05, -0.1), pitch_deg=55.0, width_along="lateral")


def box(low: tuple[float, float, float], high: tuple[float, float, float]):
    return np.array([low]), np.array([high])


def render(camera: CameraConfig, low=NOTHING, high=NOTHING, *, rotation=None, height_m=0.5):
    """One camera's image of boxes over a floor at -10 m."""
    base = np.array([0.0, 0.0, height_m])
    rotation = np.eye(3) if rotation is None else rotation
    return DepthCameras((camera,), FAR_M).render(base, rotation, low, high, -10.0)[0]


def rotation_of(roll: float, pitch: float, yaw: float) -> np.ndarray:
    client = BulletClient()
    matrix = client.getMatrixFromQuaternion(client.getQuaternionFromEuler([roll, pitch, yaw]))
    client.close()
    return np.array(matrix).reshape(3, 3)


def test_floor_and_far_limit():
    cameras = DepthCameras((CameraConfig(),), FAR_M)
    base = np.array([0.0, 0.0, 0.5])
    near = cameras.render(base, np.eye(3), NOTHING, NOTHING, -0.5)
    np.testing.assert_allclose(near, 1.0 - 0.115, rtol=1e-6)
    assert (cameras.render(base, np.eye(3), NOTHING, NOTHING, -5.0) == FAR_M).all()
    sky = cameras.render(base, np.diag([1.0, -1.0, -1.0]), NOTHING, NOTHING, -0.5)
    assert (sky == FAR_M).all()


def test_a_tilted_camera_sees_the_ground_where_its_rays_meet_it():
    image = render(TILTED, *box((-9, -9, -1), (9, 9, 0)))
    expected = np.minimum(0.4 / np.maximum(-ray_directions(TILTED)[..., 2], 1e-9), FAR_M)
    np.testing.assert_allclose(image, expected, rtol=1e-5)
    assert (np.diff(image[:, 0]) < 0).all()  # rows from far to near


def test_columns_run_forward_and_rows_from_left_to_right():
    ahead = render(CameraConfig(), *box((0.2, -9, -1), (9, 9, 0)))
    assert (ahead[:, 20:] < 0.5).all()
    assert (ahead[:, :12] == FAR_M).all()
    left = render(CameraConfig(), *box((-9, 0, -1), (9, 9, 0)))
    assert (left[:12] < 0.5).all()
    assert (left[12:] == FAR_M).all()


def test_width_along_lateral_turns_the_image():
    camera = CameraConfig(width_along="lateral")
    ahead = render(camera, *box((0.2, -9, -1), (9, 9, 0)))
    assert (ahead[:9] < 0.5).all()
    assert (ahead[15:] == FAR_M).all()
    left = render(camera, *box((-9, 0, -1), (9, 9, 0)))
    assert (left[:, :16] < 0.5).all()
    assert (left[:, 16:] == FAR_M).all()


def test_field_of_view_spans_the_rows():
    directions = ray_directions(CameraConfig(fov_deg=90.0))
    assert directions[0, 0, 1] == pytest.approx(1 - 1 / 24)
    np.testing.assert_allclose(directions[:, :, 2], -1)
    np.testing.assert_allclose(np.diff(directions[0, :, 0]), 2 / 24)
    np.testing.assert_allclose(np.diff(directions[:, 0, 1]), -2 / 24)


@pytest.fixture(scope="module")
def placed():
    """Random stones and a client whose world contains only them."""
    client = BulletClient()
    stones = draw_stones(SteppingStonesConfig(), (0.1, 0.2), np.random.default_rng(0))
    robot = Laikago(client)
    robot.place(stones, np.zeros((4, 3)))
    client.removeBody(robot._body)
    yield client, stones
    client.close()


@pytest.mark.parametrize("camera", [CameraConfig(), TILTED])
def test_pybullet_rays_meet_the_same_stones(placed, camera):
    """On drawn stones, from tilted bases. Bullet rounds a box's edges by a millimetre."""
    client, stones = placed
    rng = np.random.default_rng(1)
    cameras = DepthCameras((camera,), FAR_M)
    error_m = []
    for _ in range(6):
        rotation = rotation_of(*rng.uniform(-0.3, 0.3, 3))
        base = np.array([rng.uniform(0, 3), rng.uniform(-0.1, 0.1), rng.uniform(0.4, 0.5)])
        image = cameras.render(base, rotation, stones.low_m, stones.high_m, FLOOR_M)[0]
        rays = ray_directions(camera).reshape(-1, 3) @ rotation.T
        start = np.broadcast_to(base + rotation @ camera.position_m, rays.shape)
        hits = client.rayTestBatch(start.tolist(), (start + FAR_M * rays).tolist())
        depth = np.array([hit[2] if hit[0] >= 0 else 1.0 for hit in hits]) * FAR_M
        with np.errstate(divide="ignore"):
            floor = np.where(rays[:, 2] < 0, (FLOOR_M - start[:, 2]) / rays[:, 2], FAR_M)
        error_m.append(np.abs(np.minimum(depth, floor) - image.ravel()))
    assert np.mean(np.array(error_m) < 1e-5) > 0.99
    assert np.mean(np.array(error_m) < 2e-3) > 0.998


def test_turned_boxes_are_those_that_were_not_in_a_world_that_was():
    """Unturned, and with robot and boxes turned together, the images are those along the axes."""
    stones = draw_stones(SteppingStonesConfig(), (0.1, 0.2), np.random.default_rng(1))
    low, high = stones.low_m[:4], stones.high_m[:4]
    middle, half = (low + high) / 2, (high - low) / 2
    cameras = DepthCameras((CameraConfig(), TILTED), FAR_M)
    base, rotation = np.array([0.5, 0.03, 0.48]), rotation_of(0.05, -0.1, 0.2)
    plain = cameras.render(base, rotation, low, high, FLOOR_M)
    for angle in (0.0, 0.7, -2.5):
        about = rotation_of(0.0, 0.0, angle)
        centre, yaw = middle @ about.T, np.full(len(middle), angle)
        turned = cameras.render(
            about @ base, about @ rotation, centre - half, centre + half, FLOOR_M, yaw
        )
        error_m = np.abs(turned - plain)
        assert np.mean(error_m < 1e-6) > 0.999  # a pixel on an edge may fall on its other side
        assert np.median(error_m) < 1e-7


@pytest.mark.parametrize("turned", [False, True])
def test_images_are_those_of_one_box_and_one_camera_at_a_time(turned):
    """To the bit, and whatever the order of the boxes; an image has more rays than are met at
    once."""
    rng, boxes = np.random.default_rng(0), 6
    cameras = [
        CameraConfig(height_px=30, width_px=40),
        CameraConfig(pitch_deg=55.0, height_px=30, width_px=40),
    ]
    base, rotation = np.array([0.0, 0.0, 0.45]), rotation_of(0.1, -0.2, 0.3)
    low = rng.uniform(-1, 0, (boxes, 3))
    scene = [low, low + rng.uniform(0.1, 0.6, (boxes, 3)), rng.uniform(-1, 1, boxes)]

    def images(several: list[CameraConfig], chosen: slice) -> np.ndarray:
        low, high, yaw = (part[chosen] for part in scene)
        yaw_rad = yaw if turned else None
        return DepthCameras(several, FAR_M).render(base, rotation, low, high, -0.5, yaw_rad)

    together = images(cameras, slice(None))
    np.testing.assert_array_equal(images(cameras, slice(None, None, -1)), together)
    alone = [[images([one], slice(box, box + 1))[0] for box in range(boxes)] for one in cameras]
    np.testing.assert_array_equal(np.min(alone, axis=1), together)
    assert 0.2 < (together < FAR_M).mean() < 1


def test_a_ray_within_a_side_of_a_box_misses_it():
    """Of an odd number of rows, the middle one looks along the side, here of a box to the left."""
    seen = render(CameraConfig(height_px=9, width_px=9), *box((-9, 0, -1), (9, 9, 0))) < FAR_M
    np.testing.assert_array_equal(seen, np.arange(9)[:, None] < np.full(9, 4))


def test_reach_covers_what_a_level_base_sees():
    for camera in (CameraConfig(), TILTED, CameraConfig(pitch_deg=30.0, width_along="lateral")):
        behind, ahead = DepthCameras((camera,), FAR_M).reach_m(1.0)
        rays = ray_directions(camera)
        depth = np.minimum((1.0 + camera.position_m[2]) / np.maximum(-rays[..., 2], 1e-6), FAR_M)
        x = camera.position_m[0] + depth * rays[..., 0]
        assert (behind, ahead) == pytest.approx((-x.min(), x.max()))


def test_a_camera_that_looks_ahead_sees_stones_as_far_as_it_can():
    """The environment draws only stones within the cameras' reach."""
    camera = {"pitch_deg": 30.0, "width_along": "lateral"}
    env = SteppingStonesEnv(front_camera=camera, camera_far_m=4.0, sensor_noise=0.0)
    observation, _ = env.reset(seed=1)
    state, stones = env._state, env._stones
    image = env._sight._cameras["depth"].render(
        state.position_m, state.rotation, stones.low_m, stones.high_m, FLOOR_M
    )
    env.close()
    np.testing.assert_array_equal(observation["depth"], image)
    assert image[0].max() > 2.5
