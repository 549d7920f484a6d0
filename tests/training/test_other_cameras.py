"""A policy refuses cameras that differ from those of its training."""

import gymnasium
import pytest

import envs  # noqa: F401
from training import rollout
from training.command.errors import UserError
from training.io import checkpoint

DENSE, VOTE, SWEEP = "stepping_stones_angular_8x8", "stepping_stones", "bimanual_sweep_angular_8x2"
OTHER = [
    (DENSE, "SteppingStones-v0", {"front_camera": {"pitch_deg": 70.0}}, "front_camera"),
    (DENSE, "SteppingStones-v0", {"belly_camera": {"pitch_deg": 75.0}}, "belly_camera"),
    (DENSE, "SteppingStones-v0", {"foothold_forward_m": 0.1}, "foothold_forward_m"),
    (SWEEP, "BimanualSweep-v0", {"image_px": 250, "camera_fov_deg": 50.0}, "camera_fov_deg"),
]  # fmt: skip


def made(env_id, settings):
    return gymnasium.make(env_id, disable_env_checker=True, **settings)


@pytest.mark.parametrize(("name", "env_id", "settings", "key"), OTHER)
def test_a_policy_that_reads_no_geometry_refuses_other_cameras(name, env_id, settings, key):
    with made(env_id, settings) as env:
        with pytest.raises(UserError) as caught:
            checkpoint.load_policy(name, env)
        sentence = str(caught.value)
        assert f"was trained with {key} = " in sentence
        assert "--force" in sentence
        assert sentence.count("\n") == 0
        policy, _ = checkpoint.load_policy(name, env, force=True)
        observation, _ = env.reset(seed=100000)
        assert env.action_space.contains(policy.act(observation))


def test_votes_read_the_cameras_that_are_there():
    with made("SteppingStones-v0", OTHER[0][2]) as env:
        checkpoint.load_policy(VOTE, env)


def test_other_terrain_and_noise_are_no_other_robot():
    with made("SteppingStones-v0", {"gap_m": [0.1, 0.2], "sensor_noise": 2.0}) as env:
        checkpoint.load_policy(DENSE, env)


def test_force_plays_it_and_so_does_the_former_name(capsys):
    words = [DENSE, "--set", "front_camera.pitch_deg=80", "episode_s=0.5"]
    assert rollout.main(words) == 2
    error = capsys.readouterr().err
    assert "was trained with front_camera = " in error
    assert len(error.splitlines()) == 1
    assert rollout.main([*words, "--force"]) == 0
    assert "was trained with another front_camera and does not adapt" in capsys.readouterr().err
    assert rollout.main([*words, "--anyway"]) == 0
    assert "note: --anyway is now --force\n" in capsys.readouterr().err
