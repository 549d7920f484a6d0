"""BimanualSweep-v0: seeds, images, ends and success; `test_contract` has the rest."""

import gymnasium
import numpy as np
import pytest

from envs.bimanual_sweep import env as sweep_env
from envs.bullet import BulletClient
from tests.envs.episodes import expert, still
from tests.envs.sweeps import make


@pytest.fixture(scope="module")
def env():
    env = make()
    yield env
    env.close()


@pytest.fixture(scope="module")
def seeing():
    env = make(images=True)
    yield env
    env.close()


def test_spaces_are_as_documented(seeing):
    rgb, pose = seeing.observation_space["rgb"], seeing.observation_space["pose"]
    assert (rgb.shape, rgb.dtype) == ((500, 500, 3), np.uint8)
    assert (pose.shape, pose.dtype) == ((12,), np.float32)
    assert (seeing.action_space.shape, seeing.action_space.dtype) == ((12,), np.float32)
    limit = np.tile(np.float32([0.04] * 3 + [0.2] * 3), 2)
    np.testing.assert_array_equal(seeing.action_space.high, limit)
    np.testing.assert_array_equal(seeing.action_space.low, -limit)


def test_images_change_nothing_else(env):
    """With and without them, the tools and the balls go the same way."""

    def way(env):
        observations = [env.reset(seed=4)[0]]
        observations += [env.step(expert(env))[0] for _ in range(10)]
        return np.array([o["pose"] for o in observations]), env._balls_m

    seen = make(images=True, image_px=50)
    for there, here in zip(way(seen), way(env), strict=True):
        np.testing.assert_array_equal(there, here)
    seen.close()


def test_seeds_vary_balls_bowls_and_start_poses(env):
    starts = []
    for seed in range(4):
        pose = env.reset(seed=seed)[0]["pose"]
        starts.append((env._balls_m[:, :2], env._scene.bowls_m, pose.reshape(2, 6)[:, :3]))
    for k, start in enumerate(starts):
        for other in starts[:k]:
            assert all((mine != theirs).all() for mine, theirs in zip(start, other, strict=True))
    for balls, bowls, places in starts:
        assert (np.abs(balls) <= [0.16, 0.20]).all()
        assert (np.abs(bowls - [[-0.4, 0], [0.4, 0]]) <= 0.02).all()
        assert (np.abs(places - [[0, 0.3, 0.2], [0, -0.3, 0.2]]) <= 0.031).all()


def test_black_images_are_the_callers_own(env):
    first = env.reset(seed=1)[0]["rgb"]
    assert not first.any()
    first[:] = 1
    assert not env.step(still(env))[0]["rgb"].any()


def test_an_episode_ends_in_time_alone():
    env = make(episode_s=0.5)
    env.reset(seed=0)
    assert [env.step(still(env))[2:4] for _ in range(5)] == [(False, False)] * 4 + [(False, True)]
    env.reset(seed=0)
    assert env.step(still(env))[3] is False
    env.close()


def test_a_camera_that_cannot_open_leaves_no_client(monkeypatch):
    """PyBullet gives the least free number, and has 1024."""

    def broken(config):
        raise RuntimeError("PyBullet could not open a physics client")

    def free_number():
        client = BulletClient()
        number = client.id
        client.close()
        return number

    before = free_number()
    monkeypatch.setattr(sweep_env, "SweepCamera", broken)
    with pytest.raises(RuntimeError, match="could not open a physics client"):
        make()
    assert free_number() == before


def test_render_shows_what_the_policy_sees():
    """Even without images in the observation, see docs/guide/bimanual_sweep.md."""
    env = make(render_mode="rgb_array", images=True)
    blind = make(render_mode="rgb_array")
    for world in (env, blind):
        assert world.render() is None
        observation, _ = world.reset(seed=2)
    for _ in range(5):
        observation, *_ = env.step(expert(env))
        blind.step(expert(blind))
    picture = env.render()
    assert np.abs(picture.astype(int) - observation["rgb"]).max() <= 2
    np.testing.assert_array_equal(picture, blind.render())
    env.close()
    blind.close()


def test_success_is_every_ball_in_a_bowl_whoever_ends_the_episode():
    env = gymnasium.make("BimanualSweep-v0", images=False, balls=1, max_episode_steps=3)
    env.reset(seed=0)
    scene = env.unwrapped._scene
    ball, bowl = scene.balls[0], scene.bowls_m[0]
    env.step(still(env))
    env.unwrapped._client.resetBasePositionAndOrientation(ball, [*bowl, 0.03], [0, 0, 0, 1])
    ends = [env.step(still(env))[1:] for _ in range(2)]
    assert [(end[0], end[3]["success"]) for end in ends] == [(1.0, True)] * 2
    assert [end[2] for end in ends] == [False, True]
    env.close()
