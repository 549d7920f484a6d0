"""The ceiling and the floor of BimanualSweep-v0."""

import numpy as np
import pytest

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.expert import SweepExpert
from tests.envs.episodes import expert, random
from tests.envs.sweeps import make, play


def test_expert_completes_a_scene_with_small_tracking_errors():
    env = make()
    env.reset(seed=8)
    assert not env.expert_done
    errors, rewards = [], []
    while not env.expert_done and len(errors) < 200:
        _, reward, terminated, truncated, info = env.step(env.expert_action())
        errors.append(info["tracking_error_m"])
        rewards.append(reward)
        assert (terminated, truncated) == (False, False)
    assert 90 <= len(rewards) <= 170
    assert info["in_bowls"] >= 0.9
    assert rewards[0] == 0.0
    assert 0.4 < rewards[60] < 0.9  # one bowl's load is in, the second on its way
    assert np.max(errors) < 5e-3
    assert info["refused"] == 0
    env.close()


def test_expert_gives_one_action_a_step():
    env = make()
    env.reset(seed=1)
    for _ in range(5):
        first = env.expert_action()
        np.testing.assert_array_equal(env.expert_action(), first)
        assert env.action_space.contains(first)
        first[:] = 9  # the caller's own array
        env.step(env.expert_action())
    env.close()


def test_the_expert_carries_nothing_from_step_to_step():
    """Asked only now, in the middle of an episode, it says what it would have said anyway."""
    env = make()
    env.reset(seed=3)
    for step in range(50):
        action = env.expert_action()
        if step % 10 == 9:
            fresh = SweepExpert(env.config, env._scene.bowls_m)
            change = fresh.action(*env._expert_sees()).ravel().astype(np.float32)
            limit = env.action_space.high
            np.testing.assert_array_equal(np.clip(change, -limit, limit), action)
        env.step(action)
    env.close()


@pytest.mark.parametrize("off_m", [0.0, 0.01, 0.02])
def test_it_comes_nearer_while_it_lowers_a_load(off_m):
    """Down or up must not hang on a few millimetres, which no image shows."""
    bowl_m = np.array([0.4, 0.0])
    half_gap_m, high_m = 0.002, 0.115
    targets = np.zeros((2, 6))
    targets[:, :2] = np.array([[off_m, half_gap_m], [off_m, -half_gap_m]]) + bowl_m
    targets[:, 2] = high_m
    load_m = np.array([[bowl_m[0] + off_m, 0.0, high_m + 0.03]])
    expert = SweepExpert(BimanualSweepConfig(), np.array([bowl_m, -bowl_m]))
    change = expert.action(targets, load_m, np.array([False]))
    assert (change[:, 2] < -0.01).all()
    np.testing.assert_allclose(change[:, 0], -off_m)


@pytest.mark.parametrize(
    "shaken_at",
    [12, *(pytest.param(step, marks=pytest.mark.slow) for step in (5, 18, 45))],
)
def test_it_goes_on_after_a_push(shaken_at):
    """Random actions for a second, but not while a load is in the air, which would fly off."""
    env = make()
    env.reset(seed=8)
    for _ in range(shaken_at):
        env.step(env.expert_action())
    push = random(1)
    for _ in range(10):
        env.step(push(env))
    for _ in range(330):
        fraction = env.step(env.expert_action())[1]
        if env.expert_done:
            break
    assert fraction >= 0.5
    env.close()


@pytest.mark.parametrize("arm", ["left", "right"])
def test_one_arm_alone_achieves_nothing(arm):
    """Both arms have brought 0.4 or more into bowls by step 60."""
    env = make(frozen_arm=arm)
    assert play(env, 0, expert, steps=70) <= 0.1
    env.close()


def test_random_actions_achieve_little():
    env = make()
    assert play(env, 0, random(0), steps=100) <= 0.1
    env.close()


@pytest.mark.slow
def test_expert_over_fifty_evaluation_scenes():
    env = make()
    fractions = [play(env, 100_000 + k, expert) for k in range(50)]
    assert np.mean(fractions) >= 0.97, fractions
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"frozen_arm": "left"}, {"frozen_arm": "right"}, {}])
def test_the_floor_over_fifty_evaluation_scenes(settings):
    env = make(**settings)
    seeds = [100_000 + k for k in range(50)]
    fractions = [play(env, seed, expert if settings else random(seed)) for seed in seeds]
    assert np.mean(fractions) <= 0.10, fractions
    env.close()
