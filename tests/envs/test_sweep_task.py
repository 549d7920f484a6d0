"""BimanualSweep-v0 as a Gymnasium environment: contract, determinism, isolation."""

import multiprocessing

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.bimanual_sweep import env as sweep_env
from envs.bullet import BulletClient
from tests.envs.sweeps import expert, fingerprint, fresh_fingerprint, make, random, still


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


def test_gymnasium_checker_has_no_complaint():
    with gymnasium.make("BimanualSweep-v0", disable_env_checker=True, image_px=100) as env:
        check_env(env.unwrapped)


def test_spaces_are_as_documented(seeing):
    rgb, pose = seeing.observation_space["rgb"], seeing.observation_space["pose"]
    assert (rgb.shape, rgb.dtype) == ((500, 500, 3), np.uint8)
    assert (pose.shape, pose.dtype) == ((12,), np.float32)
    assert (seeing.action_space.shape, seeing.action_space.dtype) == ((12,), np.float32)
    limit = np.tile(np.float32([0.04] * 3 + [0.2] * 3), 2)
    np.testing.assert_array_equal(seeing.action_space.high, limit)
    np.testing.assert_array_equal(seeing.action_space.low, -limit)


def test_every_number_is_finite_and_in_its_space(seeing):
    act = random(0)
    observation, info = seeing.reset(seed=1)
    for _ in range(10):
        assert seeing.observation_space.contains(observation)
        assert np.isfinite(observation["pose"]).all()
        assert set(info) == {"in_bowls", "success", "tracking_error_m", "refused", "arms_touch"}
        observation, reward, terminated, truncated, info = seeing.step(act(seeing))
        assert isinstance(reward, float)
        assert 0 <= reward <= 1
        assert reward == info["in_bowls"]
        assert (terminated, truncated) == (False, False)


def test_an_episode_does_not_depend_on_those_before(seeing):
    first = fingerprint(seeing, 3)
    assert fingerprint(seeing, 4, steps=5, act=random(0)) != first
    assert fingerprint(seeing, 3) == first


def test_a_process_of_its_own_gives_the_same_episode(seeing):
    settings = {"balls": 5, "image_px": 100, "images": True}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.starmap(fresh_fingerprint, [(5, {"images": True}), (6, settings)])
    assert there == [fingerprint(seeing, 5), fresh_fingerprint(6, settings)]


def test_two_environments_do_not_disturb_each_other(env):
    alone = fingerprint(env, 8)
    other = make()
    other.reset(seed=9)

    def act(env):
        other.step(still(other))
        return expert(env)

    assert fingerprint(env, 8, act=act) == alone
    other.close()
    assert fingerprint(env, 8) == alone


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


def test_without_a_seed_every_episode_has_new_balls(env):
    env.reset(seed=1)
    env.reset()
    second = env._balls_m
    env.reset()
    assert (second[:, :2] != env._balls_m[:, :2]).all()


def test_arrays_are_the_callers_own(seeing):
    observations = [seeing.reset(seed=1)[0]]
    action = np.zeros(12, np.float32)
    observations += [seeing.step(action)[0] for _ in range(3)]
    observations += [make().reset(seed=1)[0]]  # black images
    copies = [{key: part.copy() for key, part in seen.items()} for seen in observations]
    action[:] = 1.0
    seeing.step(action)
    for i, (seen, copy) in enumerate(zip(observations, copies, strict=True)):
        for key, part in seen.items():
            assert part.flags.writeable
            np.testing.assert_array_equal(part, copy[key])
            assert not any(np.shares_memory(part, other[key]) for other in observations[:i])


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


def test_actions_out_of_bounds_are_clipped(env):
    ends = []
    for scale in (1.0, 7.0):
        env.reset(seed=1)
        for _ in range(3):
            pose = env.step(scale * env.action_space.high)[0]["pose"]
        ends.append(pose)
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize(
    ("action", "got"),
    [
        (np.full(12, np.nan), r"\[nan, nan,"),
        (np.array([0.0123456789] * 11 + [np.inf]), r"\[0.0123456789, .*, inf\]$"),
        (np.zeros(8), r"shape \(8,\)$"),
        (np.zeros((2, 6)), r"shape \(2, 6\)$"),
        ([False] * 12, r"\[False, False, "),
        (["0.01"] * 12, r"\['0.01', '0.01', "),
        (None, "None$"),
    ],
)
def test_an_impossible_action_is_one_sentence(env, action, got):
    env.reset(seed=1)
    before = env._targets.poses.copy()
    with pytest.raises(ValueError, match=f"^action must be 12 finite numbers, got {got}") as error:
        env.step(action)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(env._targets.poses, before)


def test_step_needs_a_reset():
    env = make()
    with pytest.raises(RuntimeError, match="reset must be called before step"):
        env.step(still(env))
    env.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bowls": 3}, r"^reset takes no options, got bowls$"),
        ({"bowls": 3, 1: 2}, r"^reset takes no options, got 1, bowls$"),
        ("bowls", r"^options of reset must be a mapping or None, got 'bowls'$"),
    ],
)
def test_reset_takes_no_options(env, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        env.reset(options=options)


def test_seeds_are_integers_of_any_kind(env):
    with pytest.raises(ValueError, match=r"^seed must be an integer of at least 0, got True$"):
        env.reset(seed=True)
    expected = env.reset(seed=2)[0]["pose"]
    np.testing.assert_array_equal(env.reset(seed=np.int64(2), options={})[0]["pose"], expected)


def test_close_twice():
    env = make(images=True, image_px=50)
    env.reset(seed=0)
    env.close()
    env.close()
    make().close()  # before any reset


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


def test_rendering_changes_nothing(env):
    shown = make(render_mode="rgb_array", image_px=50)

    def act(env):
        assert env.render().any()
        return expert(env)

    ends = []
    for world, policy in ((shown, act), (env, expert)):
        world.reset(seed=3)
        for _ in range(8):
            pose = world.step(policy(world))[0]["pose"]
        ends.append(np.concatenate([pose, world._balls_m.ravel()]))
    np.testing.assert_array_equal(*ends)
    shown.close()


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
