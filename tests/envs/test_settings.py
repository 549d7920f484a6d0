"""Settings out of range: one sentence with the key, the received value and the allowed values."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from envs.cameras import CameraConfig
from envs.settings import read_settings
from envs.stepping_stones import SteppingStonesConfig
from tests.envs.episodes import make

WRONG = [
    ({"front_camera": {"pitch": 1}}, r"unknown setting 'front_camera.pitch'; .*pitch_deg"),
    ({"gap_m": (0.1, 0.9)}, r"gap_m must be .* <= 0.3 metres, got \[0.1, 0.9\]"),
    ({"gap_m": (-0.1, 0.1)}, r"gap_m must be .*0.0 <= low.*got \[-0.1, 0.1\]"),
    ({"gap_m": (0.2, 0.1)}, r"gap_m must be .*low <= high.*got \[0.2, 0.1\]"),
    ({"gap_m": 0.1}, r"gap_m = 0.1, but input should be a valid tuple"),
    ({"gap_m": (0.1,)}, r"gap_m.1 is missing"),
    ({"gap_m": (0.1, float("nan"))}, r"gap_m.1 = nan, but input should be a finite number"),
    ({"stone_length_m": (-1.0, 0.5)}, r"stone_length_m must be .*got \[-1.0, 0.5\]"),
    ({"first_edge_m": (0.0, 0.5)}, r"first_edge_m must be .*0.25 <= low.*got \[0.0, 0.5\]"),
    ({"belly_camera": {"pitch_deg": 200}}, r"belly_camera.pitch_deg = 200, but .* equal to 90"),
    ({"front_camera_pitch_deg": (50, 40)}, r"front_camera_pitch_deg .* degrees, got \[50.0, 40"),
    ({"front_camera_moved_m": (0.0, 0.3, 0.0)}, r"front_camera_moved_m must be .* 0 to 0.2 metres"),
    ({"camera_pose_error_deg": (4, 4)}, r"camera_pose_error_deg needs camera_pose_told = true"),
    (
        {"camera_pose_error_deg": (-90, 4), "camera_pose_told": True},
        r"camera_pose_error_deg must be .*-45.0 <= low .* degrees, got \[-90.0, 4.0\]",
    ),
    (
        {"cameras": ("belly",), "front_camera_pitch_deg": (40, 50)},
        r"front_camera_pitch_deg is of the front camera, which cameras must name, got belly",
    ),
    ({"path_radius_m": (1.0, 3.0)}, r"path_radius_m must be .*1.5 <= low.* got \[1.0, 3.0\]"),
    ({"walk_back": True, "success_distance_m": 0.3}, "walk_back needs .* 0.5 m, got 0.3"),
    ({"walk_back": True}, "walk_back over success_distance_m = 3 m .* at least 15 s, got 10"),
    ({"sensor_noise": 1j}, r"sensor_noise = 1j, but settings are plain values: numbers, "),
    ({"sensor_noise": 10**5000}, r"sensor_noise = a value of type int, but settings are plain"),
    ({"sensor_noise": Decimal(1)}, r"sensor_noise = Decimal\('1'\), but settings are plain values"),
    ({"gap_m": ("0.1", 0.2)}, r"gap_m.0 = '0.1', but .* valid number"),
    ({"gap_m": {0.1, 0.2}}, r"gap_m = \{0.\d, 0.\d\}, but settings are plain values"),
    ({"gap_m": (0.1, 0.15, 0.2)}, r"gap_m = \[0.1, 0.15, 0.2\], but .* at most 2 items"),
    ({"gap_m": np.eye(2)}, r"gap_m.0 = \[1.0, 0.0\], but .* valid number"),
    ({"gap_m": {"low": 0.1}}, r"gap_m = \{'low': 0.1\}, but .* valid tuple"),
    ({"front_camera": "steep"}, r"front_camera = 'steep', but .* a mapping of settings"),
    ({"front_camera": {"pitch_deg": "45"}}, r"front_camera.pitch_deg = '45', but .* valid number"),
    ({"front_camera": {"width_along": "\ud800"}}, r"front_camera = .*, but settings are plain"),
    ({"front_camera": {1: 2}}, r"unknown setting 'front_camera.1'; .*pitch_deg"),
    ({"front_camera": SteppingStonesConfig()}, r"unknown setting 'front_camera.*'; .*pitch_deg"),
]

PLAIN = [
    ({"sensor_noise": 1}, 1.0),
    ({"sensor_noise": np.float64(0.1)}, 0.1),
    ({"sensor_noise": np.float32(0.5)}, 0.5),
    ({"sensor_noise": np.longdouble(0.5)}, 0.5),
    ({"sensor_noise": np.int64(2)}, 2.0),
    ({"sensor_noise": np.array(0.1)}, 0.1),
    ({"sensor_noise": 1e-310}, 1e-310),
    ({"gap_m": [0.1, 0.2]}, (0.1, 0.2)),
    ({"gap_m": np.array([0.1, 0.2])}, (0.1, 0.2)),
    ({"gap_m": (np.float64(0.1), 0.2)}, (0.1, 0.2)),
    ({"gap_m": (0, np.int32(0))}, (0.0, 0.0)),
    ({"front_camera": CameraConfig(pitch_deg=45)}, CameraConfig(pitch_deg=45)),
    ({"front_camera": {"position_m": np.zeros(3)}}, CameraConfig(position_m=(0, 0, 0))),
    ({"front_camera": {"pitch_deg": np.int64(45)}}, CameraConfig(pitch_deg=45)),
    (
        {"belly_camera": {"width_along": np.str_("lateral")}},
        CameraConfig(position_m=(-0.092, 0.0, -0.105), width_along="lateral"),
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_wrong_settings(settings, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        make(**settings)
    assert type(error.value) is ValueError
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("settings", "expected"), PLAIN)
def test_equivalent_values_give_identical_settings(settings, expected):
    config = read_settings(SteppingStonesConfig, settings)
    assert getattr(config, *settings) == expected
    assert type(config.sensor_noise) is float
    assert all(type(gap) is float for gap in config.gap_m)


@pytest.mark.parametrize("camera", ["front_camera", "belly_camera"])
def test_a_camera_that_is_turned_stays_in_its_place(camera):
    default = getattr(SteppingStonesConfig(), camera)
    turned = getattr(SteppingStonesConfig(**{camera: {"pitch_deg": 45.0}}), camera)
    assert turned == replace(default, pitch_deg=45.0)
    moved = getattr(SteppingStonesConfig(**{camera: {"position_m": (0.1, 0.0, 0.0)}}), camera)
    assert moved == replace(default, position_m=(0.1, 0.0, 0.0))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gap": 1}, "options of reset may hold terrain_seed and gap_m, got gap"),
        ({"gap_m": (0.1, 0.9)}, r"gap_m must be .*got \[0.1, 0.9\]"),
        *(
            ({"terrain_seed": seed}, "terrain_seed must be an integer of at least 0, got ")
            for seed in (-1, 1.5, True, np.True_, "7", [7])
        ),
        ({"gap_m": "wide"}, "gap_m = 'wide', but .* valid tuple"),
        ({"gap_m": (True, True)}, "gap_m.0 = True, but .* valid number"),
        ({"gap_m": None}, "gap_m = None, but .* valid tuple"),
        ({"gap_m": (0.1, float("nan"))}, "gap_m.1 = nan, but .* finite number"),
    ],
)
def test_wrong_reset_options(env, options, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        env.reset(seed=1, options=options)
    assert "\n" not in str(error.value)


def test_options_and_seeds_of_numpy_are_those_they_stand_for(env):
    expected = env.reset(seed=3, options={"terrain_seed": 7, "gap_m": (0.05, 0.1)})[0]
    options = {"terrain_seed": np.uint8(7), "gap_m": np.array([0.05, 0.1])}
    found = env.reset(seed=np.int64(3), options=options)[0]
    for key, part in expected.items():
        np.testing.assert_array_equal(found[key], part)
    assert set(options) == {"terrain_seed", "gap_m"}


@pytest.fixture(scope="module")
def env():
    with make() as env:
        yield env


def test_extreme_settings_that_are_allowed_run():
    settings = {
        "gap_m": (0.3, 0.3),
        "stone_width_m": 5.0,
        "stone_length_m": (0.2, 10.0),
        "sensor_noise": 10.0,
        "reward_speed_m_s": 1e6,
        "episode_s": 0.05,
        "front_camera": {"pitch_deg": 0.0, "width_along": "lateral"},
        "camera_far_m": 20.0,
        "foothold_lateral_m": 0.0,
    }
    with make(**settings) as env:
        env.reset(seed=1)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert terminated or truncated


@pytest.mark.parametrize("pitch_deg", [38.0, 51.0])
def test_a_pitch_that_is_drawn_is_not_given_otherwise(pitch_deg):
    drawn = {"front_camera_pitch_deg": (40.0, 50.0)}
    words = r"front_camera.pitch_deg = \d+ has no effect where front_camera_pitch_deg = \[40, 50\]"
    with pytest.raises(ValueError, match=words):
        SteppingStonesConfig(front_camera=CameraConfig(pitch_deg=pitch_deg), **drawn)
    for allowed in (45.0, 90.0):  # as shipped policies have it, and the default
        SteppingStonesConfig(front_camera=CameraConfig(pitch_deg=allowed), **drawn)
