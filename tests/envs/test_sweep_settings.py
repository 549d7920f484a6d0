"""Settings of BimanualSweep-v0: each has an effect, and invalid values raise one sentence."""

import hashlib
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from envs.bimanual_sweep import BimanualSweepConfig
from tests.envs.episodes import expert
from tests.envs.sweeps import constant, make

WRONG = [
    ({"balls": 100}, r"balls = 100 of radius 0.015 m need 0.360 m\^2, and .* 0.128 m\^2"),
    ({"spawn_m": (0.0, 0.2)}, r"spawn_m must be two positive lengths, got \[0.0, 0.2\]"),
    ({"spawn_m": (0.3, 0.2)}, r"spawn_m must be at most \[0.230, 0.535\], .*got \[0.3, 0.2\]"),
    ({"spawn_m": (0.1, 0.6)}, r"spawn_m must be at most .* beside the table, got \[0.1, 0.6\]"),
    ({"table_m": (0.0, 1.0)}, r"table_m must be two positive lengths, got \[0.0, 1.0\]"),
    ({"table_m": (0.9, 1.0)}, r"bowl_x_m \+ .* must be at most 0.45, .*got 0.520"),
    ({"bowl_x_m": 0.2}, r"spawn_m must be at most .* start in a bowl"),
    ({"bowl_x_m": 0.5}, r"bowl_x_m \+ .* must be at most 0.55, .*got 0.620"),
    ({"table_m": (1.1, 0.2)}, r"bowl_jitter_m \+ .* must be at most 0.1, or .* over the table's"),
    ({"bowl_plate_m": 0.02, "bowl_height_m": 0.03}, r"bowl_plate_m must be .* 0.03, got 0.02"),
    ({"bowl_rim_radius_m": 0.05}, r"bowl_rim_radius_m must be at least .* 0.1, got 0.05"),
    ({"blade_clearance_m": 0.015}, r"blade_clearance_m must be below .* 0.015, .*got 0.015"),
    (
        {"blade_width_m": 0.05, "blade_clearance_m": 0.02, "ball_radius_m": 0.03, "balls": 5},
        r"blade_clearance_m must be at most a quarter of blade_width_m = 0.05, got 0.02",
    ),
    ({"camera_eye_m": (0, 0, 0.02)}, r"camera_eye_m must be 0.35 to 2.6 m from camera_target_m"),
    ({"camera_eye_m": (0, 0, 3)}, r"camera_eye_m must be 0.35 to 2.6 m .*got \[0.0, 0.0, 3.0\]"),
    ({"camera_eye_m": (0, 0, 1)}, r"camera_eye_m must not be straight above or below"),
    ({"camera_eye_m": (0, 0)}, r"camera_eye_m.2 is missing"),
]


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_wrong_settings(settings, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        make(**settings)
    assert type(error.value) is ValueError
    assert "\n" not in str(error.value)


def boxes(env):
    """(parts, 3) centres and sizes of both tools' boxes, from PyBullet."""
    shapes = [
        shape
        for arm in env._scene.arms
        for shape in env._client.getCollisionShapeData(arm.body, arm.tool)
    ]
    return np.array([[*shape[5], *shape[3]] for shape in shapes])


def ball_facts(env):
    ball = env._scene.balls[0]
    dynamics = env._client.getDynamicsInfo(ball, -1)
    radius = env._client.getCollisionShapeData(ball, -1)[0][3][0]
    return [len(env._scene.balls), radius, dynamics[0], dynamics[1], dynamics[6]]


def table_facts(env):
    return env._client.getCollisionShapeData(0, -1)[0][3]


def bowl_facts(env):
    """Boxes of the space that the two bowls fill, relative to their centres."""
    bodies = (1, 2)  # after the table
    return [
        np.array(env._client.getAABB(body)) - [*bowl, 0]
        for body, bowl in zip(bodies, env._scene.bowls_m, strict=True)
    ]


def floor_facts(env):
    """Where a ball comes to rest that falls near a bowl's floor's edge."""
    ball, bowl = env._scene.balls[0], env._scene.bowls_m[0]
    env._client.resetBasePositionAndOrientation(ball, [bowl[0], 0.09 + bowl[1], 0.06], [0, 0, 0, 1])
    for _ in range(5):
        env.step(np.zeros(12))
    return env._balls_m[0]


def places(env):
    return env._balls_m[:, :2]


def bowls(env):
    return env._scene.bowls_m


def starts(env):
    return env._poses


def joints(env):
    return env._targets.joints_rad


def picture(env):
    return env._observe()["rgb"][::7, ::7]


def moved(env):
    start = env._poses.copy()
    env.step(constant([1] * 6, [1] * 6)(env))
    return env._poses - start


def entries(env):
    return sorted(env.observation_space.spaces)


def steps(env):
    count = 1
    while not env.step(expert(env))[3]:
        count += 1
    return count


EFFECTS = [
    ("episode_s", 0.3, steps),
    ("balls", 7, ball_facts),
    ("ball_radius_m", 0.012, ball_facts),
    ("ball_mass_kg", 0.02, ball_facts),
    ("ball_friction", 0.9, ball_facts),
    ("ball_rolling_friction_m", 1e-3, ball_facts),
    ("spawn_m", (0.1, 0.3), places),
    ("table_m", (1.2, 1.1), table_facts),
    ("bowl_x_m", 0.41, bowls),
    ("bowl_jitter_m", 0.0, bowls),
    ("bowl_base_radius_m", 0.08, floor_facts),
    ("bowl_rim_radius_m", 0.15, bowl_facts),
    ("bowl_height_m", 0.10, bowl_facts),
    ("bowl_plate_m", 0.01, bowl_facts),
    ("start_jitter_m", 0.0, starts),
    ("blade_width_m", 0.16, boxes),
    ("blade_clearance_m", 0.005, boxes),
    ("blade_length_m", 0.10, boxes),
    ("blade_slope_rad", 0.6, boxes),
    ("wall_height_m", 0.05, boxes),
    ("wall_ahead_m", 0.02, boxes),
    ("blade_plate_m", 0.006, boxes),
    ("handle_m", 0.10, boxes),
    ("arm_distance_m", 0.60, joints),
    ("step_m", 0.02, moved),
    ("step_rad", 0.1, moved),
    ("frozen_arm", "left", moved),
    ("image_px", 100, picture),
    ("images", False, picture),
    ("camera_eye_m", (-0.9, 0.2, 1.1), picture),
    ("camera_target_m", (0.1, 0.0, 0.0), picture),
    ("camera_fov_deg", 40.0, picture),
    ("extra_cameras", {"side": {"height_px": 20}}, entries),
]
SEEN = {
    "ball_radius_m", "table_m", "bowl_x_m", "bowl_base_radius_m", "bowl_rim_radius_m",
    "bowl_height_m", "blade_width_m", "wall_height_m", "arm_distance_m",
}  # fmt: skip


@cache
def usual(measure):
    """Of the default settings."""
    return facts(measure, {})


def facts(measure, settings):
    env = make(**({"image_px": 350, "images": measure is picture, "episode_s": 0.5} | settings))
    env.reset(seed=0)
    found = np.array(measure(env))
    env.close()
    return found


@pytest.mark.records  # each opens an environment
@pytest.mark.parametrize(("key", "value", "measure"), EFFECTS)
def test_every_setting_changes_what_it_says(key, value, measure):
    assert not np.array_equal(usual(measure), facts(measure, {key: value}))


@pytest.mark.records
@pytest.mark.parametrize("key", sorted(SEEN))
def test_shapes_are_seen_as_they_are_felt(key):
    value = next(value for name, value, _ in EFFECTS if name == key)
    assert not np.array_equal(usual(picture), facts(picture, {key: value}))


def test_every_setting_has_a_test_of_its_effect():
    assert {key for key, _, _ in EFFECTS} == {field.name for field in fields(BimanualSweepConfig)}


def test_sizes_are_those_asked_for():
    env = make(blade_width_m=0.16, blade_length_m=0.1, balls=4, bowl_height_m=0.09)
    env.reset(seed=0)
    left = env._client.getCollisionShapeData(env._scene.arms[0].body, env._scene.arms[0].tool)
    assert left[0][3][:2] == pytest.approx((0.16, 0.1))
    assert ball_facts(env)[:2] == [4, 0.015]
    assert bowl_facts(env)[0][1][2] == pytest.approx(0.09, abs=0.01)
    env.close()


def test_extreme_settings_that_are_allowed_run():
    settings = {
        "episode_s": 0.05,
        "balls": 1,
        "ball_mass_kg": 1.0,
        "ball_friction": 0.0,
        "ball_rolling_friction_m": 0.0,
        "spawn_m": (0.01, 0.5),
        "start_jitter_m": 0.0,
        "bowl_jitter_m": 0.0,
        "bowl_base_radius_m": 0.135,
        "step_m": 0.1,
        "step_rad": 0.5,
        "wall_ahead_m": 0.0,
        "image_px": 50,
        "images": True,
        "camera_eye_m": (0.0, -0.5, 0.3),
    }
    env = make(**settings)
    env.reset(seed=1)
    observation, _, _, truncated, _ = env.step(env.action_space.high)
    assert env.observation_space.contains(observation)
    assert truncated
    env.close()


def test_the_assets_page_names_every_file_with_its_hash():
    folder = Path(__file__).parents[2] / "sim_assets"
    page = (folder / "README.md").read_text()
    for file in folder.glob("*.urdf"):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert re.search(rf"^\| `{file.name}` \|.*`{digest}` \|$", page, re.MULTILINE), file.name
