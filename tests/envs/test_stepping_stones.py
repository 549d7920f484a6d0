"""SteppingStones-v0 as a Gymnasium environment: contract, determinism, isolation."""

import multiprocessing

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import envs.stepping_stones.env as stepping_stones_env
from tests.envs.episodes import blind, expert, fingerprint, fresh_fingerprint, make


@pytest.fixture(scope="module")
def env():
    with make() as env:
        yield env


@pytest.fixture(scope="module")
def shown():
    """An environment with images, and its first image before a reset."""
    with make(render_mode="rgb_array") as env:
        yield env, env.unwrapped.render()


def edges(env):
    return env.unwrapped._stones.edges_m


def test_gymnasium_checker_has_no_complaint():
    with gymnasium.make("SteppingStones-v0", disable_env_checker=True) as env:
        check_env(env.unwrapped)


def test_every_number_is_finite_and_in_its_space(env):
    for act in (expert, blind):
        observation, _ = env.reset(seed=1)
        for _ in range(30):
            assert env.observation_space.contains(observation)
            assert all(np.isfinite(part).all() for part in observation.values())
            observation, reward, terminated, _, _ = env.step(act(env))
            assert np.isfinite(reward)
            if terminated:
                break
    assert terminated  # blind: what a falling robot sees is finite too


def test_an_episode_does_not_depend_on_those_before(env):
    first = fingerprint(env, 3)
    assert fingerprint(env, 4, act=blind) != first
    assert fingerprint(env, 3) == first


def test_a_process_of_its_own_gives_the_same_episode(env):
    settings = {"sensor_noise": 2.0, "gap_m": (0.05, 0.15)}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.starmap(fresh_fingerprint, [(5, {}), (6, settings)])
    assert there == [fingerprint(env, 5), fresh_fingerprint(6, settings)]


def test_two_environments_do_not_disturb_each_other(env):
    alone = fingerprint(env, 8)
    with make() as other:
        other.reset(seed=9)

        def act(env):
            other.step(blind(other))
            return expert(env)

        assert fingerprint(env, 8, act=act) == alone
    assert fingerprint(env, 8) == alone


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


def test_without_a_seed_every_episode_has_new_stones(env):
    env.reset(seed=1)
    env.reset()
    second = edges(env).copy()
    env.reset()
    assert not np.array_equal(second, edges(env))


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


def test_arrays_are_the_callers_own(env):
    observations = [env.reset(seed=1)[0]]
    action = np.zeros(9, np.float32)
    observations += [env.step(action)[0] for _ in range(3)]
    copies = [{key: part.copy() for key, part in seen.items()} for seen in observations]
    action[:] = 1.0
    env.step(action)
    for i, (seen, copy) in enumerate(zip(observations, copies, strict=True)):
        for key, part in seen.items():
            np.testing.assert_array_equal(part, copy[key])
            assert not any(np.shares_memory(part, other[key]) for other in observations[:i])


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
            _, _, terminated, truncated, info = env.step(blind(env))
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
            action = expert(env) if decision < 20 else blind(env)
            foothold_m = course.nominal_x_m(world._state) + 0.12 * action[:4].astype(float)
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


def test_actions_out_of_bounds_are_clipped(env):
    ends = []
    for scale in (1.0, 7.0):
        env.reset(seed=1)
        ends.append([env.unwrapped.step(np.full(9, scale))[1] for _ in range(10)])
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("action", "got"),
    [
        (np.full(9, np.nan), r"\[nan, nan, "),
        (np.array([np.inf] * 9), r"\[inf, inf, "),
        (np.zeros(8), r"shape \(8,\)$"),
        (np.zeros((300, 3)), r"shape \(300, 3\)$"),
        (0.5, r"shape \(\)$"),
        ([True] * 9, r"\[True, True, "),
        (["0"] * 9, r"\['0', '0', "),
        (np.zeros(9, complex), r"array\(\[0"),
        ([[0.0], [0.0, 0.0]], r"\[\[0.0\], \[0.0, 0.0\]\]$"),
        (np.zeros(9, object), r"array\(\[0"),
        (None, "None$"),
        ("forward", "'forward'$"),
    ],
)
def test_an_impossible_action_is_an_error(env, action, got):
    env.reset(seed=1)
    with pytest.raises(ValueError, match=f"^action must be 9 finite numbers, got {got}") as error:
        env.unwrapped.step(action)
    assert "\n" not in str(error.value)


def test_who_goes_on_after_a_fall_stays_fallen():
    with make(success_distance_m=0.01, episode_s=2.0) as env:
        env.reset(seed=1)
        ends = [env.unwrapped.step(blind(env))[2:] for _ in range(45)]
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
                    return env.get_wrapper_attr("_decisions"), truncated, info["success"]

    assert end(max_episode_steps=30) == (30, True, False)
    assert end(episode_s=1.5) == (30, True, True)
    assert end(episode_s=1.5, max_episode_steps=300) == (30, True, True)


def test_step_needs_a_reset():
    with make() as env, pytest.raises(RuntimeError, match="reset must be called before step"):
        env.unwrapped.step(np.zeros(9))


def test_expert_needs_a_reset():
    message = "reset must be called before the expert can be asked"
    with make() as env, pytest.raises(RuntimeError, match=message):
        env.unwrapped.expert_action()


def test_there_is_nothing_to_see_before_a_reset(shown):
    assert shown[1] is None


def test_close_twice():
    env = make()
    env.reset(seed=0)
    env.close()
    env.close()
    env.unwrapped.close()


def test_rendering_shows_an_image_and_changes_nothing(env, shown):
    pictures = []

    def act(env):
        pictures.append(env.render())
        return expert(env)

    for seed in (3, 4):
        assert fingerprint(shown[0], seed, steps=5, act=act) == fingerprint(env, seed, steps=5)
    assert {(p.shape, p.dtype) for p in pictures} == {((480, 640, 3), np.dtype(np.uint8))}
    assert np.ptp(pictures[0], axis=(0, 1)).min() > 50
    assert (pictures[0] != pictures[-1]).any()
    assert env.render() is None


def test_a_new_world_changes_nothing(env, shown, monkeypatch):
    """The world that is emptied between terrains, with the image that people see."""
    expected = fingerprint(env, 5, steps=12)
    monkeypatch.setattr(stepping_stones_env, "_TERRAINS_A_WORLD", 2)
    other, _ = shown
    for seed in range(2):
        other.reset(seed=seed)
    assert fingerprint(other, 5, steps=12) == expected
    assert np.ptp(other.render()) > 50


def test_the_expert_walks_without_lateral_speed():
    """Of a robot that cannot be told to move sideways every action stays finite."""
    with make(lateral_speed_m_s=0.0) as env:
        env.reset(seed=2)
        for _ in range(20):
            action = expert(env)
            assert action[8] == 0
            assert np.isfinite(env.step(action)[1])
