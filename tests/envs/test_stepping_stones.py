"""SteppingStones-v0: options of reset, noise, rewards and ends; `test_contract` has the rest."""

import numpy as np
import pytest

import envs.stepping_stones.env as stepping_stones_env
from tests.envs.episodes import expert, fingerprint, make, still


@pytest.fixture(scope="module")
def env():
    with make() as env:
        yield env


def edges(env):
    return env.unwrapped._stones.edges_m


def test_terrain_seed_fixes_the_stones_alone(env):
    def start(seed, **options):
        observation, _ = env.reset(seed=seed, options=options)
        return edges(env).copy(), observation["proprio"]

    stones, proprio = start(1, terrain_seed=7)
    same_stones, other_proprio = start(2, terrain_seed=7)
    np.testing.assert_array_equal(stones, same_stones)
    assert (proprio[:29] != other_proprio[:29]).all()
    other_stones, same_proprio = start(1, terrain_seed=8)
    assert (stones[1:] != other_stones[1:]).all()
    np.testing.assert_array_equal(proprio, same_proprio)
    np.testing.assert_array_equal(start(7)[0], stones)


def test_gap_option_holds_for_one_episode(env):
    def gaps():
        return edges(env)[1:, 0] - edges(env)[:-1, 1]

    env.reset(seed=1, options={"gap_m": [0.02, 0.06]})
    assert (gaps() >= 0.02).all()
    assert (gaps() <= 0.06).all()
    env.reset(seed=1)
    assert (gaps() >= 0.10).all()
    assert gaps().max() > 0.15


def test_no_pixel_is_constant():
    with make(sensor_noise=0.0) as env:
        env.reset(seed=2)
        images = np.stack([env.step(expert(env))[0]["depth"] for _ in range(60)])
    assert np.ptp(images, axis=0).min() > 0.01


def test_noise_can_be_turned_off_and_up(env):
    def proprio(scale):
        with make(sensor_noise=scale) as env:
            return env.reset(seed=3)[0]["proprio"]

    exact = proprio(0.0)
    np.testing.assert_allclose(exact[[0, 1, 2, 3, 4, 5, 6, 7, 8]], 0, atol=1e-9)
    spread = [np.abs(proprio(scale)[:3] - exact[:3]).mean() for scale in (1.0, 5.0)]
    assert spread[1] == pytest.approx(5 * spread[0], rel=1e-4)

    def depth_error(scale):
        with make(sensor_noise=scale) as env:
            observation, _ = env.reset(seed=3)
            true = env.unwrapped
            stones = true._stones
            image = true._sight._cameras["depth"].render(
                true._state.position_m, true._state.rotation, stones.low_m, stones.high_m, -0.5
            )
            return (observation["depth"] - image).std()

    assert depth_error(0.0) == 0
    assert depth_error(1.0) == pytest.approx(0.005, rel=0.1)


def test_an_episode_ends_in_time_or_by_a_fall():
    with make(episode_s=1.0, success_distance_m=0.1) as env:
        env.reset(seed=1)
        ends = [env.step(expert(env))[2:] for _ in range(20)]
        assert all(end[:2] == (False, False) and not end[2]["success"] for end in ends[:-1])
        assert ends[-1][:2] == (False, True)
        assert ends[-1][2]["success"]
        assert not ends[-1][2]["fell"]
    with make() as env:
        env.reset(seed=1)
        for _ in range(200):
            observation, _, terminated, truncated, info = env.step(still(env))
            assert env.observation_space.contains(observation)  # a falling robot's too
            if terminated or truncated:
                break
        assert (terminated, truncated, info["fell"], info["success"]) == (True, False, True, False)


def test_reward_is_clipped_progress():
    with make(reward_speed_m_s=0.3) as env:
        _, info = env.reset(seed=1)
        steps = [env.step(expert(env)) for _ in range(40)]
    distance = np.array([info["distance_m"], *(step[4]["distance_m"] for step in steps)])
    rewards = np.array([step[1] for step in steps])
    np.testing.assert_allclose(rewards, np.minimum(np.diff(distance), 0.3 * 0.05))
    assert (rewards == 0.3 * 0.05).any()
    assert (rewards < 0.3 * 0.05).any()


def test_margin_reward_tells_stones_from_gaps():
    """Legs FL and RR choose at decision 1, FR and RL at decision 6, and so on in turn."""
    chosen = []
    with make(margin_reward=1.0, sensor_noise=0.0) as env:
        _, info = env.reset(seed=1)
        world = env.unwrapped
        course = world._course
        for decision in range(60):
            action = expert(env) if decision < 20 else still(env)
            foothold_m = course.nominal_m(world._state)[0] + 0.12 * action[:4].astype(float)
            start_m = info["distance_m"]
            _, reward, fell, _, info = env.step(action)
            if fell:
                break
            legs = {1: [1, 2], 6: [0, 3]}.get(decision % 10)
            progress = min(info["distance_m"] - start_m, 0.025)
            margin = 0.0
            if legs:
                inside = [
                    max(min(x - near, far - x) for near, far in edges(env))
                    for x in foothold_m[legs]
                ]
                chosen.extend(inside)
                margin = np.clip(np.array(inside) / 0.05, -1, 1).mean()
            expected = progress + margin * max(progress / 0.025, 0)
            assert reward == pytest.approx(expected, abs=1e-9)
    assert min(chosen) < -0.02 < 0.05 < max(chosen)


def test_who_goes_on_after_a_fall_stays_fallen():
    with make(success_distance_m=0.01, episode_s=2.0) as env:
        env.reset(seed=1)
        ends = [env.unwrapped.step(still(env))[2:] for _ in range(45)]
    first = next(i for i, end in enumerate(ends) if end[0])
    assert first < 40
    for terminated, truncated, info in ends[first:]:
        assert (terminated, truncated, info["fell"], info["success"]) == (True, False, True, False)


def test_success_follows_the_environments_own_clock():
    """`max_episode_steps` is the wrapper's, and unknown to it: the class and the page say so."""

    def end(**settings):
        with make(success_distance_m=0.1, **settings) as env:
            env.reset(seed=1)
            while True:
                *_, terminated, truncated, info = env.step(expert(env))
                if terminated or truncated:
                    assert info["distance_m"] > 0.1
                    return env.get_wrapper_attr("_walked"), truncated, info["success"]

    assert end(max_episode_steps=30) == (30, True, False)
    assert end(episode_s=1.5) == (30, True, True)
    assert end(episode_s=1.5, max_episode_steps=300) == (30, True, True)


def test_a_new_world_changes_nothing(env, monkeypatch):
    """The world that is emptied between terrains, with the image that people see."""
    expected = fingerprint(env, 5, steps=12)
    monkeypatch.setattr(stepping_stones_env, "_TERRAINS_A_WORLD", 2)
    with make(render_mode="rgb_array") as other:
        for seed in range(2):
            other.reset(seed=seed)
        assert fingerprint(other, 5, steps=12) == expected
        assert np.ptp(other.render()) > 50


def test_the_expert_walks_without_lateral_speed():
    """Every action stays finite for a robot whose lateral speed cannot be commanded."""
    with make(lateral_speed_m_s=0.0) as env:
        env.reset(seed=2)
        for _ in range(20):
            action = expert(env)
            assert action[8] == 0
            assert np.isfinite(env.step(action)[1])
