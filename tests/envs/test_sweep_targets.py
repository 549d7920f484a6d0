"""What the tools are asked to do, and what they then do: limits, refusals, the other tool."""

import math

import numpy as np
import pytest

from envs.bimanual_sweep.targets import _APART_M, _HIGHEST_M, _LOWEST_M, _STEEPEST_RAD
from tests.envs.episodes import random, still
from tests.envs.sweeps import constant, make


@pytest.fixture(scope="module")
def env():
    env = make(balls=1)
    yield env
    env.close()


def gap_m(poses):
    """How far the left edge is on the left of the right one, along the mean yaw."""
    yaw = poses[:, 5].mean()
    return float((poses[0, :2] - poses[1, :2]) @ [-math.sin(yaw), math.cos(yaw)])


def inwards(seed):
    """Random changes held for some steps, on top of a drive towards the other tool."""
    rng, held = np.random.default_rng(seed), np.zeros(12)
    drive = np.array([0, -0.02, -0.01, 0, 0, 0, 0, 0.02, -0.01, 0, 0, 0])

    def act(env):
        nonlocal held
        if rng.random() < 0.15:
            held = rng.choice([-1, 1], 12) * env.action_space.high
        return held + drive

    return act


@pytest.mark.parametrize("frozen", ["none", "left", "right"])
def test_targets_stay_in_their_box_and_on_their_side(env, frozen):
    world = env if frozen == "none" else make(balls=1, frozen_arm=frozen)
    world.reset(seed=0)
    act = inwards(0)
    for _ in range(120):
        places_m = world._targets.poses[:, :3].copy()  # the tools follow
        world._targets.move(act(world).reshape(2, 6), places_m)
        poses = world._targets.poses
        assert (poses[:, :3] >= _LOWEST_M).all()
        assert (poses[:, :3] <= _HIGHEST_M).all()
        assert (np.abs(poses[:, 3:]) <= _STEEPEST_RAD).all()
        assert gap_m(poses) >= _APART_M - 1e-6
        for model, joints in zip(world._models, world._targets.joints_rad, strict=True):
            assert (joints >= model.kinematics.lower_rad).all()
            assert (joints <= model.kinematics.upper_rad).all()
    assert world._targets.refused > 0


SQUEEZES = {
    "level": constant([0, -0.04, 0, 0, 0, 0], [0, 0.04, 0, 0, 0, 0]),
    "on the table": constant([0, -0.04, -0.04, 0, 0, 0], [0, 0.04, -0.04, 0, 0, 0]),
    "turned": constant([0, -0.04, 0, 0, 0, 0.02], [0, 0.04, 0, 0, 0, 0.02]),
    "along each other": constant([0.005, -0.04, 0, 0, 0, 0], [0.005, 0.04, 0, 0, 0, 0]),
}


@pytest.mark.parametrize("drive", SQUEEZES)
def test_tools_driven_into_each_other_do_not_pass(env, drive):
    """They meet, stay on their sides to 5 cm where they jam askew, and come apart freely.

    Overlaps of up to 3 cm occur for an instant, as thin plates strike each other.
    """
    env.reset(seed=0)
    left, right = env._scene.arms
    gaps, depths = [], [0.0]
    for _ in range(40):
        env.step(SQUEEZES[drive](env))
        gaps.append(gap_m(env._poses.reshape(2, 6)))
        contacts = env._client.getContactPoints(bodyA=left.body, bodyB=right.body)
        depths += [contact[8] for contact in contacts]
    assert min(gaps) < 0.03  # they met
    assert min(gaps) > (-0.05 if drive == "turned" else 0.0)
    assert min(depths) > -0.03
    for _ in range(10):
        info = env.step(-SQUEEZES[drive](env))[4]
    assert gap_m(env._poses.reshape(2, 6)) > 0.2
    assert info["tracking_error_m"] < 0.01


def test_touching_arms_are_reported(env):
    env.reset(seed=0)
    assert env.step(still(env))[4]["arms_touch"] is False
    for _ in range(30):
        info = env.step(SQUEEZES["on the table"](env))[4]
    assert info["arms_touch"] is True


def test_a_target_out_of_reach_is_refused_and_counted(env):
    _, info = env.reset(seed=0)
    assert info["refused"] == 0
    away = constant([0.04, -0.04, 0.02, 0, 0, 0], [0] * 6)  # the box reaches further than the arm
    counts = [env.step(away(env))[4]["refused"] for _ in range(15)]
    assert counts[5] == 0
    assert np.diff(counts).tolist() == sorted(np.diff(counts).tolist())
    assert counts[-1] >= 2
    assert env._targets.poses[0, 0] < 0.5
    assert env.reset(seed=0)[1]["refused"] == 0
    still_at = env._targets.poses.copy()
    assert env.step(still(env))[4]["refused"] == 0
    np.testing.assert_array_equal(env._targets.poses, still_at)


def test_tools_follow_their_targets(env):
    """A change of the target is a change of the pose; the error is the pose's distance."""
    env.reset(seed=0)
    action = np.array([0.02, -0.01, -0.02, 0.05, 0.02, -0.05] * 2, np.float32)
    start = env._poses.ravel()
    for _ in range(3):
        pose, _, _, _, info = env.step(action)
    np.testing.assert_allclose(pose["pose"] - start, 3 * action, atol=8e-3)
    for _ in range(5):
        _, _, _, _, info = env.step(still(env))
    targets, tools = env._targets.poses, env._poses.reshape(2, 6)
    np.testing.assert_allclose(tools, targets, atol=3e-3)
    error = np.linalg.norm((targets - tools)[:, :3], axis=1).max()
    assert info["tracking_error_m"] == pytest.approx(error)
    assert info["tracking_error_m"] < 3e-3


def test_tracking_error_tells_of_a_tool_that_is_held_back(env):
    """A blade rolled onto the table cannot follow."""
    env.reset(seed=0)
    down = constant([0, 0, -0.04, 0.2, 0, 0], [0] * 6)
    errors = [env.step(down(env))[4]["tracking_error_m"] for _ in range(15)]
    assert max(errors) > 0.01


@pytest.mark.parametrize(("arm", "side"), [("left", 0), ("right", 1)])
def test_a_frozen_arm_ignores_its_action(arm, side):
    world = make(balls=1, frozen_arm=arm)
    world.reset(seed=0)
    start = world._poses.reshape(2, 6).copy()
    act = random(1)
    for _ in range(5):
        world.step(act(world))
    moved = np.abs(world._poses.reshape(2, 6) - start)[:, :3].max(axis=1)
    assert moved[side] < 3e-3
    assert moved[1 - side] > 0.02
    for _ in range(20):  # even when the other one comes for it
        world.step(SQUEEZES["level"](world))
    np.testing.assert_allclose(world._targets.poses[side], start[side], atol=4e-3)
    world.close()


@pytest.mark.parametrize("distance_m", [0.36, 1.5])
def test_an_arm_too_near_or_too_far_away_is_one_sentence(distance_m):
    """0.36 m are too near for the middle of where a tool starts, not for the corners."""
    with pytest.raises(
        ValueError,
        match=rf"^arm_distance_m = {distance_m}: an arm there, .* cannot reach \[[^\n]*\] m[^\n]*$",
    ):
        make(arm_distance_m=distance_m)


def test_the_widest_start_can_be_reached():
    make(start_jitter_m=0.1).close()
