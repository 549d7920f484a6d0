"""SteppingStones-v0 on curved and return paths: commands, observations and rewards."""

import numpy as np
import pytest

from envs.stepping_stones.expert import best_footholds
from envs.stepping_stones.schedule import Schedule
from envs.stepping_stones.twist import turn, wrapped
from experiments.robots.blind_walkers import BlindBackward, Steered
from policies import build_for
from tests.envs.episodes import expert, make

LEFT = {"path_turn": "left", "path_radius_m": (3.0, 3.0)}
BACK = {"walk_back": True, "episode_s": 18.0}
FLAT = {"path_turn": "left", "path_radius_m": (10.0, 10.0), "first_edge_m": (5.0, 5.0)}


def play(env, act, seed, steps=400):
    """Observations, rewards and the last of an episode."""
    observation, info = env.reset(seed=seed)
    seen, rewards, infos = [observation], [], [info]
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(act(env, observation))
        seen.append(observation)
        rewards.append(reward)
        infos.append(info)
        if terminated or truncated:
            break
    return seen, np.array(rewards), infos, (terminated, truncated)


def sees(env, observation):
    return expert(env)


@pytest.mark.parametrize(
    ("settings", "actions", "numbers"), [(LEFT, 10, 51), (BACK, 9, 50), ({**LEFT, **BACK}, 10, 51)]
)
def test_spaces_hold_what_a_twist_needs(settings, actions, numbers):
    with make(**settings, clutter_per_m=3.0) as env:
        observation, _ = env.reset(seed=1)
        assert env.action_space.shape == (actions,)
        assert observation["proprio"].shape == (numbers,)
        feet = env.unwrapped.geometry.footholds
        assert (feet.actions, feet.yaw_rate) == (actions, 9 if actions == 10 else None)
        action = np.linspace(-0.9, 0.9, actions).astype(np.float32)
        proprio = env.step(action)[0]["proprio"]
        np.testing.assert_array_equal(proprio[36 : 36 + actions], action)
        told = [proprio[part] for part in (feet.odometry, feet.heading)]
        assert [len(part) for part in told] == [2, 2]
        np.testing.assert_allclose(told[1], [np.sin(proprio[2]), np.cos(proprio[2])], atol=1e-6)
        assert proprio[feet.commanded_speed] == np.float32(0.5)


def test_a_straight_row_has_no_twist_in_its_observation():
    with make() as env:
        feet = env.unwrapped.geometry.footholds
        assert env.reset(seed=1)[0]["proprio"].shape == (45,)
    assert feet.yaw_rate is feet.odometry is feet.heading is feet.commanded_speed is None


def test_the_robot_turns_as_fast_as_commanded_and_knows_where_it_is():
    """Two thirds of a turn on one stone, past south, where the compass jumps."""
    with make(**FLAT, stone_width_m=5.0) as env:
        env.reset(seed=1)
        world, turned, yaw = env.unwrapped, 0.0, 0.0
        for decision in range(180):
            action = np.eye(10, dtype=np.float32)[9] * (decision >= 40)
            observation, _, fell, *_ = env.step(action)
            before, yaw = yaw, world._state.euler_rad[2]
            turned += wrapped(yaw - before)
            assert not fell
            told = observation["proprio"]
            assert abs(wrapped(float(told[2]) - yaw)) < 0.2
            np.testing.assert_allclose(told[-3:-1], [np.sin(yaw), np.cos(yaw)], atol=0.2)
        assert turned == pytest.approx(0.6 * 7, abs=0.15)
        np.testing.assert_allclose(told[46:48], world._state.position_m[:2], atol=0.25)


@pytest.mark.parametrize(("seed", "turns"), [(1, "left"), (2, "right")])
def test_the_expert_follows_the_path_and_is_rewarded_along_it(seed, turns):
    settings = {"path_turn": turns, "path_radius_m": (2.0, 2.0), "episode_s": 5.0}
    with make(**settings, success_distance_m=2.0) as env:
        _, rewards, infos, end = play(env, sees, seed)
        course, state = env.unwrapped._course, env.unwrapped._state
    along = np.array([info["distance_m"] for info in infos])
    assert end == (False, True)
    assert infos[-1]["success"]
    np.testing.assert_allclose(rewards, np.minimum(np.diff(along), 0.025), atol=1e-12)
    place = course.path.place(state.position_m)
    assert along[-1] == pytest.approx(place.along_m)
    assert abs(place.aside_m) < 0.1
    assert abs(wrapped(place.heading_rad - state.euler_rad[2])) < 0.2
    assert state.position_m[1] * (1 if turns == "left" else -1) > 0.5


@pytest.mark.parametrize("act", [lambda env, seen: np.zeros(10), None])
def test_blind_walkers_fall_where_the_path_turns(act):
    with make(**LEFT) as env:
        steered = Steered(env)
        _, _, infos, end = play(env, act or (lambda env, seen: steered.act(seen)), 3)
    assert end == (True, False)
    assert infos[-1]["fell"]
    assert infos[-1]["distance_m"] < 2


def test_out_and_back():
    """To 1.2 m, and back; who does not look on the way back falls there."""
    settings = {"walk_back": True, "success_distance_m": 1.2, "episode_s": 12.0}
    with make(**settings) as env:
        seen, rewards, infos, end = play(env, sees, 4)
        told = np.array([observation["proprio"][-1] for observation in seen])
        x = env.unwrapped._state.position_m[0]
        blind = BlindBackward(env)
        _, _, others, fallen = play(env, lambda env, seen: blind.act(seen), 4)
    assert end == (True, False)
    assert (infos[-1]["success"], infos[-1]["fell"]) == (True, False)
    assert 0.15 < x <= 0.3
    changes = np.flatnonzero(np.diff(told))
    assert told[[0, *(changes + 1)]].tolist() == pytest.approx([0.5, 0.0, -0.4])
    assert changes[1] - changes[0] == 20  # it stops for a second
    assert infos[changes[0] + 1]["distance_m"] >= 1.2 > infos[changes[0]]["distance_m"]
    assert 1.2 + 0.9 < infos[-1]["distance_m"] < 2.6  # it rolls on a little while it stops
    assert rewards[changes[0] + 1 : changes[1] + 1].tolist() == [0.0] * 20
    assert (fallen, others[-1]["success"]) == ((True, False), False)


def test_a_schedule_counts_what_is_asked():
    schedule = Schedule(turn_at_m=1.0)
    assert schedule.advance(0.5) == 0.5
    assert schedule.advance(1.1) == pytest.approx(0.6)
    assert schedule.speed_m_s == 0
    assert [schedule.advance(1.2) for _ in range(20)] == [0.0] * 20
    assert schedule.speed_m_s == -0.4
    assert schedule.advance(0.7) == pytest.approx(0.5)
    assert not schedule.is_back
    assert schedule.advance(0.75) == pytest.approx(-0.05)
    schedule.advance(0.29)
    assert schedule.is_back
    assert schedule.distance_m == pytest.approx(1.1 + 1.2 - 0.29)
    ahead = Schedule(np.inf)
    ahead.advance(100.0)
    assert (ahead.speed_m_s, ahead.is_back) == (0.5, False)


def test_the_expert_chooses_the_cheapest_foothold_of_a_grid():
    with make(**LEFT) as env:
        env.reset(seed=1)
        stones = env.unwrapped._course.stones
    heading, reach = 0.4, np.array([0.12, 0.04])
    nominal = np.random.default_rng(0).uniform((0.2, -0.2), (1.2, 0.3), (4, 2))
    found = best_footholds(stones, nominal, heading, reach)

    def cost(offset, foot):
        margin = stones.margin_m(foot + turn(heading) @ offset)
        return -10 * min(margin, 0.05) + abs(offset[0]) + 2 * abs(offset[1])

    for offset, foot in zip(found, nominal, strict=True):
        grid = [(0.01 * i, 0.02 * j) for i in range(-12, 13) for j in range(-2, 3)]
        least = min(cost(np.array(other), foot) for other in grid)
        assert cost(offset, foot) == pytest.approx(least, abs=1e-9)
    assert best_footholds(stones, nominal, heading, np.array([0.1, 0.0]))[:, 1].tolist() == [0] * 4


def test_margins_of_the_footholds_are_rewarded_on_a_curve():
    """The commanded footholds of the legs that lift at decision 1, FL and RR."""
    with make(**LEFT, margin_reward=1.0, sensor_noise=0.0) as env:
        env.reset(seed=1)
        env.step(expert(env))
        world, action = env.unwrapped, expert(env)
        course, state = world._course, world._state
        command = course.command(action.astype(float))
        nominal = world._locomotion.nominal_footholds_m(command) @ turn(state.euler_rad[2]).T
        heading = state.euler_rad[2] + 0.6 * action[9] * 0.2
        feet = state.position_m[:2] + nominal + command.offsets_m @ turn(heading).T
        margin = np.clip(course.stones.margin_m(feet)[[1, 2]] / 0.05, -1, 1).mean()
        before = course.distance_m()
        _, reward, *_, info = env.step(action)
    progress = min(info["distance_m"] - before, 0.025)
    assert reward == pytest.approx(progress + margin * max(progress / 0.025, 0), abs=1e-9)


def test_clutter_stands_beside_a_path_that_turns():
    with make(**LEFT, clutter_per_m=20.0) as env:
        env.reset(seed=1)
        world = env.unwrapped
        many = len(world._stones.edges_m)
        centre = (world._low_m + world._high_m)[many:, :2] / 2
        places = [world._course.path.place(point) for point in centre]
        yaw = world._yaw_rad[many:]
    aside = np.array([place.aside_m for place in places])
    assert (np.abs(aside) > 0.25).all()
    assert (aside > 0).any()
    assert (aside < 0).any()
    assert max(abs(wrapped(p.heading_rad - y)) for p, y in zip(places, yaw, strict=True)) < 1e-6


def test_a_policy_that_votes_ahead_refuses_a_path_that_turns():
    with make(**LEFT) as env, pytest.raises(ValueError, match="a robot that walks straight on"):
        build_for({"name": "implicit_attention", "controller": "vote"}, env)
