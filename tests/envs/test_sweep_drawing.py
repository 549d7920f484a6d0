"""Images of the rasteriser equal those of PyBullet, byte for byte."""

import platform

import numpy as np
import pytest

from envs.bimanual_sweep import scene
from envs.bimanual_sweep.meshes import Movers
from envs.bimanual_sweep.rasteriser import Rasteriser
from envs.bullet import BulletClient
from tests.envs.episodes import expert, random
from tests.envs.sweeps import make

exact = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="elsewhere compilers may round products and sums in one",
)


class NoMovers:
    """In place of `Movers`: no shape is known."""

    @staticmethod
    def of(*_: object) -> None:
        return None


def pictures(settings, act, steps, seed=3):
    """All images of an episode, one after the other."""
    env = make(**{"images": True, **settings})
    observation, _ = env.reset(seed=seed)
    seen = [observation, *(env.step(act(env))[0] for _ in range(steps))]
    env.close()
    return [one[key] for one in seen for key in one if key.startswith("rgb")]


def assert_alike(monkeypatch, settings, act, steps=10):
    ours = pictures(settings, act(), steps)
    with monkeypatch.context() as patch:
        patch.setattr(scene, "Movers", NoMovers)
        theirs = pictures(settings, act(), steps)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    return ours


SETTINGS = {
    "of the preset": {},
    "small, of other balls and tools": {
        "image_px": 131, "balls": 7, "ball_radius_m": 0.021, "blade_width_m": 0.17,
        "blade_slope_rad": 0.5, "handle_m": 0.08, "blade_clearance_m": 0.004,
    },
    "of several cameras": {
        "image_px": 90,
        "extra_cameras": {
            "side": {"eye_m": [0.2, 1.3, 0.4], "target_m": [0, 0.3, 0.1], "width_px": 201},
            "low": {"eye_m": [0.9, -0.5, 0.05], "target_m": [0, 0, 0.1], "height_px": 77},
        },
    },
}  # fmt: skip


@exact
@pytest.mark.parametrize("act", [lambda: expert, lambda: random(0)], ids=["expert", "random"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_no_pixel_differs(settings, act, monkeypatch):
    ours = assert_alike(monkeypatch, SETTINGS[settings], act)
    assert len({one.tobytes() for one in ours}) == len(ours)  # something moves


@exact
def test_where_an_arm_reaches_behind_the_camera_pybullet_draws(monkeypatch):
    """A camera among the arm's links; then no corner may be divided by its depth."""
    drawn = []

    def draw(self, *given):
        drawn.append(original(self, *given))
        return drawn[-1]

    original = Rasteriser.draw
    monkeypatch.setattr(Rasteriser, "draw", draw)
    settings = {"image_px": 120, "camera_eye_m": [0.0, 0.35, 0.3], "camera_target_m": [0, -0.3, 0]}
    assert_alike(monkeypatch, settings, lambda: expert, 4)
    assert drawn == [False] * 5


def test_the_shapes_of_arms_tools_and_balls_are_known():
    env = make(images=True, balls=2)
    env.reset(seed=0)
    movers = env._scene.movers
    assert [body for body, _ in movers.links] == [
        *(arm.body for arm in env._scene.arms),
        *env._scene.balls,
    ]
    places, turns = movers.poses(env._client)
    assert len(places) == len(turns) == movers.meshes.bodies.max() + 1
    np.testing.assert_array_equal(places[-2:], env._scene.ball_positions_m())
    env.close()


@pytest.mark.parametrize(
    "shape",
    [
        {"shapeType": "GEOM_CAPSULE", "radius": 0.1, "length": 0.2},
        {"shapeType": "GEOM_CYLINDER", "radius": 0.1, "length": 0.2},
        {
            "shapeType": "GEOM_MESH",
            "vertices": [[0, 0, 0], [1, 0, 0], [0, 1, 0]],
            "indices": [0, 1, 2],
        },
    ],
    ids=lambda shape: shape["shapeType"],
)
def test_other_shapes_are_left_to_pybullet(shape):
    client = BulletClient()
    kind = getattr(client, shape["shapeType"])
    visual = client.createVisualShape(**{**shape, "shapeType": kind})
    body = client.createMultiBody(0, -1, visual)
    box = client.createVisualShape(client.GEOM_BOX, halfExtents=[0.1, 0.1, 0.1])
    known = client.createMultiBody(0, -1, box)
    assert Movers.of(client, [known, body]) is None
    assert Movers.of(client, [known]) is not None
    client.close()
