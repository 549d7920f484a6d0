"""Settings out of their range: one sentence with the key, what came and what is allowed."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from envs.stepping_stones import SteppingStonesConfig
from tests.envs.episodes import make

WRONG = [
    ({"nonsense": 1}, r"unknown setting 'nonsense'; .*gap_m"),
    ({"front_camera": {"pitch": 1}}, r"unknown setting 'front_camera.pitch'; .*pitch_deg"),
    ({"gap_m": (0.1, 0.9)}, r"gap_m must be .* <= 0.3 metres, got \[0.1, 0.9\]"),
    ({"gap_m": (-0.1, 0.1)}, r"gap_m must be .*0.0 <= low.*got \[-0.1, 0.1\]"),
    ({"gap_m": (0.2, 0.1)}, r"gap_m must be .*low <= high.*got \[0.2, 0.1\]"),
    ({"gap_m": 0.1}, r"gap_m = 0.1, but input should be a valid tuple"),
    ({"gap_m": (0.1,)}, r"gap_m.1 is missing"),
    ({"gap_m": (0.1, float("nan"))}, r"gap_m.1 = nan, but input should be a finite number"),
    ({"stone_length_m": (-1.0, 0.5)}, r"stone_length_m must be .*got \[-1.0, 0.5\]"),
    ({"first_edge_m": (0.0, 0.5)}, r"first_edge_m must be .*0.25 <= low.*got \[0.0, 0.5\]"),
    ({"stone_width_m": -1}, r"stone_width_m = -1, but .* greater than or equal to 0.36"),
    ({"stone_width_m": "wide"}, r"stone_width_m = 'wide', but .* valid number"),
    ({"foothold_forward_m": 0.5}, r"foothold_forward_m = 0.5, but .* less than or equal to 0.15"),
    ({"episode_s": 0}, r"episode_s = 0, but .* greater than 0"),
    ({"sensor_noise": -1}, r"sensor_noise = -1, but .* greater than or equal to 0"),
    ({"camera_far_m": 0.1}, r"camera_far_m = 0.1, but .* greater than 0.6"),
    ({"belly_camera": {"pitch_deg": 200}}, r"belly_camera.pitch_deg = 200, but .* equal to 90"),
    ({"depth_false_returns": 0.95}, r"depth_false_returns = 0.95, but .* equal to 0.9"),
    ({"depth_dropped_blocks": -0.1}, r"depth_dropped_blocks = -0.1, but .* equal to 0"),
    ({"depth_dropped_blocks": float("nan")}, r"depth_dropped_blocks = nan, but .* finite number"),
    ({"clutter_per_m": 41}, r"clutter_per_m = 41, but .* less than or equal to 40"),
    (
        {"front_camera": {"position_m": (0, 0, float("inf"))}},
        r"front_camera.position_m.2 = inf, but .* finite number",
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_wrong_settings(settings, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        make(**settings)
    assert type(error.value) is ValueError
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("camera", ["front_camera", "belly_camera"])
def test_a_camera_that_is_turned_stays_in_its_place(camera):
    default = getattr(SteppingStonesConfig(), camera)
    turned = getattr(SteppingStonesConfig(**{camera: {"pitch_deg": 45.0}}), camera)
    assert turned == replace(default, pitch_deg=45.0)
    moved = getattr(SteppingStonesConfig(**{camera: {"position_m": (0.1, 0.0, 0.0)}}), camera)
    assert moved == replace(default, position_m=(0.1, 0.0, 0.0))


@pytest.mark.filterwarnings("ignore:.*render_mode='film'")
def test_wrong_render_mode():
    with pytest.raises(
        ValueError, match="render_mode must be rgb_array, human or None, got 'film'"
    ):
        make(render_mode="film")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gap": 1}, "options of reset may hold terrain_seed and gap_m, got gap"),
        ({"gap_m": (0.1, 0.9)}, r"gap_m must be .*got \[0.1, 0.9\]"),
        ({"terrain_seed": -1}, "terrain_seed must be an integer of at least 0, got -1"),
        ({"terrain_seed": 1.5}, "terrain_seed must be an integer of at least 0, got 1.5"),
    ],
)
def test_wrong_reset_options(options, sentence):
    with make() as env, pytest.raises(ValueError, match=sentence):
        env.reset(seed=1, options=options)


def test_every_setting_is_documented():
    documented = SteppingStonesConfig.__pydantic_fields__
    assert set(documented) == {field.name for field in fields(SteppingStonesConfig)}
    assert all(field.description for field in documented.values())


def test_the_users_page_lists_every_setting_with_its_default():
    page = (Path(__file__).parents[2] / "docs" / "stepping_stones.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE))
    config = SteppingStonesConfig()
    for field in fields(SteppingStonesConfig):
        value = getattr(config, field.name)
        shown = rows[field.name]
        if field.name.endswith("camera"):
            value = f"at ({', '.join(f'{x:g}' for x in value.position_m)}) m"
        assert shown == str(value), field.name


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
