"""Pose of the front camera per episode, the reported pose, and a long rollout with this camera
only."""

import numpy as np
import pytest

from envs.stepping_stones import SteppingStonesConfig
from envs.stepping_stones.poses import draw_poses
from policies import build_for
from tests.envs.episodes import expert, make

FRONT = {
    "cameras": ("front",),
    "front_camera": {"pitch_deg": 45.0, "width_along": "lateral"},
    "sensor_noise": 0.0,
}
DRAWN = {"front_camera_pitch_deg": (30.0, 65.0), "front_camera_moved_m": (0.05, 0.02, 0.01)}


def start(seed=1, **settings):
    with make(**FRONT, **settings) as env:
        return env.reset(seed=seed)[0], env.unwrapped.geometry


def draws(count=400, **settings):
    config = SteppingStonesConfig(**settings)
    return [draw_poses(config, np.random.default_rng(seed)) for seed in range(count)]


def test_poses_are_drawn_from_their_ranges():
    """The ends of 400 uniform draws lie farther inside than 3 % once in 100,000 runs."""
    poses = draws(**DRAWN, camera_pose_told=True, camera_pose_error_deg=(-8.0, 4.0))
    fronts = [drawn.cameras["front"] for drawn in poses]
    moved = np.array([front.position_m for front in fronts]) - (0.197, 0.0, -0.115)
    values = np.column_stack([
        [front.pitch_deg for front in fronts], moved, [drawn.error_deg for drawn in poses]
    ])  # fmt: skip
    low, high = np.array([[30, 65], [-0.05, 0.05], [-0.02, 0.02], [-0.01, 0.01], [-8, 4]]).T
    assert (values >= low).all()
    assert (values <= high).all()
    assert (values.min(0) < low + 0.03 * (high - low)).all()
    assert (values.max(0) > high - 0.03 * (high - low)).all()
    assert {drawn.cameras["belly"] for drawn in poses} == {SteppingStonesConfig().belly_camera}


def test_one_setting_does_not_change_what_another_draws():
    told = {"camera_pose_told": True, "camera_pose_error_deg": (-8.0, 8.0)}
    pitch = {"front_camera_pitch_deg": (30.0, 65.0)}
    alone, both = draws(20, **pitch), draws(20, **DRAWN, **told)
    for one, other in zip(alone, both, strict=True):
        assert one.cameras["front"].pitch_deg == other.cameras["front"].pitch_deg
    errors = [drawn.error_deg for drawn in draws(20, **told)]
    assert errors == [drawn.error_deg for drawn in both]


def test_the_image_is_that_of_a_camera_fixed_at_the_drawn_pose():
    seen, geometry = start(camera_pose_told=True, **DRAWN)
    x, y, z, pitch, yaw, roll = seen["camera_pose"].astype(float)
    assert (yaw, roll) == (0, 0)
    assert geometry.positions_m["depth"][0] == pytest.approx([x, y, z], abs=1e-7)
    camera = {"pitch_deg": np.degrees(pitch), "position_m": (x, y, z), "width_along": "lateral"}
    with make(**{**FRONT, "front_camera": camera}) as env:
        fixed = env.reset(seed=1)[0]["depth"]
        rays = env.unwrapped.geometry.rays["depth"]
    np.testing.assert_allclose(geometry.rays["depth"], rays, atol=1e-6)
    away = np.abs(seen["depth"] - fixed)
    assert np.median(away) < 1e-5
    assert (away > 1e-3).mean() < 0.01  # a pixel on an edge falls on the other side of it
    assert np.abs(seen["depth"] - start()[0]["depth"]).max() > 0.05


@pytest.mark.parametrize("error", [(4.0, 4.0), (-8.0, 8.0)])
def test_the_reported_pose_may_be_wrong_and_changes_nothing_else(error):
    right, _ = start(camera_pose_told=True, **DRAWN)
    wrong, geometry = start(camera_pose_told=True, camera_pose_error_deg=error, **DRAWN)
    difference = np.degrees(wrong["camera_pose"] - right["camera_pose"])
    assert difference[[0, 1, 2, 4, 5]].tolist() == [0.0] * 5
    assert error[0] - 1e-4 <= difference[3] <= error[1] + 1e-4
    assert abs(difference[3]) > 0.1
    np.testing.assert_array_equal(wrong["depth"], right["depth"])
    down = geometry.rays["depth"][0].mean((0, 1))
    true = np.arctan2(-down[2], down[0])
    assert true == pytest.approx(right["camera_pose"][3], abs=1e-6)  # geometry does not lie


def test_poses_change_neither_stones_nor_noise_nor_steps():
    def walk(**settings):
        with make(**{**FRONT, "sensor_noise": 1.0}, **settings) as env:
            seen = [env.reset(seed=2)[0]["proprio"]]
            seen += [env.step(expert(env))[0]["proprio"] for _ in range(12)]
            return np.stack(seen), env.unwrapped._stones.edges_m

    for usual, drawn in zip(walk(), walk(camera_pose_told=True, **DRAWN), strict=True):
        np.testing.assert_array_equal(usual, drawn)


def test_several_cameras_are_reported_in_order():
    settings = {"cameras": ("belly", "front"), "camera_pose_told": True}
    with make(**settings, episode_s=0.2, camera_pose_error_deg=(4.0, 4.0)) as env:
        told = env.reset(seed=0)[0]["camera_pose"].reshape(2, 6)
        geometry = env.unwrapped.geometry
    straight_down = np.pi / 2
    expected = [[-0.092, 0, -0.105, straight_down, 0, 0], [0.197, 0, -0.115, np.radians(94), 0, 0]]
    np.testing.assert_allclose(told, expected, atol=1e-6)
    assert (geometry.observed_poses, geometry.moving) == ("camera_pose", ())


def test_a_policy_that_is_built_on_the_geometry_refuses_cameras_that_move():
    config = {"name": "implicit_attention", "controller": "vote"}
    with make(front_camera_pitch_deg=(80.0, 90.0)) as env:
        assert env.unwrapped.geometry.moving == ("depth",)
        with pytest.raises(
            ValueError, match=r"needs cameras that stay where they are, .* of depth"
        ):
            build_for(config, env)
    with make() as env:
        build_for(config, env)


@pytest.mark.parametrize("episode_s", [6.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_the_front_camera_alone_for_a_long_walk(episode_s):
    """60 s take 33 m of stones. The row is as long for its time; the expert is never at its end."""
    with make(**{**FRONT, "sensor_noise": 1.0}, episode_s=episode_s) as env:
        observation, info = env.reset(seed=3)
        assert observation["depth"].shape == (1, 24, 32)
        decisions, ended = 0, False
        while not ended:
            observation, _, fell, truncated, info = env.step(expert(env))
            decisions, ended = decisions + 1, fell or truncated
        assert env.unwrapped._stones.edges_m[-1, 1] > info["distance_m"] + 10 * episode_s / 60
    assert (decisions, fell) == (20 * episode_s, False)
    assert info["success"] == (info["distance_m"] > env.unwrapped.config.success_distance_m)
    assert info["distance_m"] > 25 * episode_s / 60
