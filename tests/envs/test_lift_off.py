"""Stepping stones decided once a lift-off, the terms of their reward, and their mirror."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import envs
from envs.stepping_stones.env import SteppingStonesEnv
from training.algorithms.mirroring import reflected

LIFT_OFF = {"decide": "lift_off", "action_legs": "lifting"}
ASIDE = {**LIFT_OFF, "stone_aside_m": 0.1, "stone_turn_deg": 20.0}
REWARDS = {"margin_reward": 1.0, "centre_reward": 0.7, "effort_cost": 0.3}


@pytest.fixture
def make():
    made = []

    def make(**settings):
        made.append(SteppingStonesEnv(**settings))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.mark.parametrize(
    "settings",
    [
        LIFT_OFF,
        {"decide": "lift_off"},
        {"decide": "lift_off", "path_turn": "left"},
        {},
        {"path_turn": "left"},
        {"margin_across": True},
        ASIDE,
    ],
)
def test_the_terms_add_up_to_the_reward(make, settings):
    """In every form of decision, and they judge every number of an action."""
    env, rng = make(**settings, **REWARDS), np.random.default_rng(0)
    env.reset(seed=1)
    size = env.action_space.shape[0]
    assert {n for own in env.reward_terms.values() for n in own} == set(range(size))
    for _ in range(12):
        action = rng.uniform(-0.3, 0.3, size).astype(np.float32)
        _, reward, terminated, _, info = env.step(action)
        assert info["reward_terms"].keys() == env.reward_terms.keys()
        assert sum(info["reward_terms"].values()) == pytest.approx(reward, abs=1e-9)
        if terminated:
            break
    assert info["reward_terms"]["progress"] != 0


def test_an_environment_that_decides_at_lift_offs_is_one_of_gymnasium():
    check_env(gymnasium.make(envs.STEPPING_STONES, **LIFT_OFF).unwrapped, skip_render_check=True)


def test_steps_after_a_fall_move_the_robot(make):
    """A fall within a decision leaves the gait where no leg lifts off."""
    env, rng, fell = make(**LIFT_OFF), np.random.default_rng(7), False
    env.reset(seed=7)
    while not fell:
        info = env.step(rng.uniform(-1, 1, 3).astype(np.float32))[-1]
        fell = info["fell"]
    before, after = info["distance_m"], env.step(np.zeros(3, np.float32))[-1]
    assert after["fell"]
    assert after["distance_m"] != before


def test_a_decision_is_held_to_the_next_lift_off(make):
    """It moves the robot as five decisions of 50 ms do, in which the lifting legs have its
    offsets; and the expert walks as well."""
    held, each = make(**LIFT_OFF, sensor_noise=0.0), make(sensor_noise=0.0)
    held.reset(seed=4)
    each.reset(seed=4)
    each.step(np.zeros(9, np.float32))
    for legs in ((1, 2), (0, 3), (1, 2)):
        action = np.float32([0.4, -0.3, 0.5])
        wide = np.zeros(9, np.float32)
        wide[[*legs, 8]] = action
        seen, reward, *_ = held.step(action)
        rewards = [each.step(wide) for _ in range(5)]
        assert reward == pytest.approx(sum(one[1] for one in rewards))
        ours, theirs = seen["proprio"][:36], rewards[-1][0]["proprio"][:36]
        assert np.array_equal(ours, theirs)
    assert held.expert_action().shape == (3,)


@pytest.mark.parametrize("settings", [LIFT_OFF, {}])
def test_the_mirror_leaves_a_symmetric_robot_as_it_is(make, settings):
    """Applied twice to anything, it gives it back; a robot that stands still is the same in it, but
    for the phase of the gait and 3 mm of its posture."""
    env, rng = make(**settings, sensor_noise=0.0), np.random.default_rng(0)
    seen, _ = env.reset(seed=2)
    for key, one in env.mirror.observation.items():
        values = rng.normal(size=seen[key].shape)
        assert np.array_equal(reflected(reflected(values, one), one), values)
    depth, proprio = (reflected(seen[key], env.mirror.observation[key]) for key in seen)
    if not settings:
        assert np.allclose(depth, seen["depth"], atol=0.02)
        kept = np.r_[0:30, 32:45]
        assert np.allclose(proprio[kept], seen["proprio"][kept], atol=3e-3)


@pytest.mark.parametrize("settings", [{"path_turn": "left"}, {"camera_pose_told": True}])
def test_a_task_that_a_mirror_changes_offers_none(make, settings):
    assert make(**settings).mirror is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"action_legs": "lifting"}, "needs decide = lift_off"),
        ({**LIFT_OFF, "path_turn": "left"}, "a straight path"),
        ({"margin_across": True, "walk_back": True, "episode_s": 20.0}, "margin_across must be"),
        ({"decide": "sometimes"}, "decide"),
        ({"effort_cost": -1.0}, "effort_cost"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        SteppingStonesEnv(**settings)


def test_frames_lie_within_a_decision_until_the_robot_falls(make):
    """A caller may draw every 25 ms; nothing is called in a reset."""
    env, moments = make(**LIFT_OFF).unwrapped, []
    env.on_frame = lambda: moments.append(env.render())
    env.reset(seed=3)
    counts, ended = [], False
    while not ended:
        *_, ended, _, _ = env.step(np.float32([0, 0, 1]))
        counts.append(len(moments) - sum(counts))
    assert set(counts[:-1]) == {env.frames_a_step} == {10}
    assert counts[-1] < 10
