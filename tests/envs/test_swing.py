"""The path of a swinging foot."""

import numpy as np
import pytest

from envs.stepping_stones.swing import SwingLegs

GROUND_M = -0.45
LIFT = np.array([[0.1, -0.1, -0.43], [0.1, 0.1, -0.44], [-0.3, -0.1, -0.45], [-0.3, 0.1, -0.46]])
FOOTHOLD = LIFT + np.array([0.08, 0.01, 0.3])  # its height does not count: the ground's does
LANDING = np.column_stack([FOOTHOLD[:, :2], np.full(4, GROUND_M)])


@pytest.fixture
def swing():
    swing = SwingLegs(clearance_m=0.07)
    swing.lift_off(range(4), LIFT, FOOTHOLD)
    return swing


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (0.0, LIFT),
        (0.45, 0.3 * LIFT + 0.7 * LANDING + [0, 0, 0.07]),
        (0.9 - 1e-12, LANDING),
        (0.95, LANDING - [0, 0, 0.03]),
        (1.0, LANDING - [0, 0, 0.03]),
    ],
)
def test_keyframes(swing, progress, expected):
    targets = swing.targets(dict.fromkeys(range(4), progress), GROUND_M)
    np.testing.assert_allclose(targets, expected, atol=1e-9)


def test_the_path_is_continuous_until_the_foot_presses_down(swing):
    times = np.linspace(0, 0.899, 900)
    path = np.array([swing.targets(dict.fromkeys(range(4), t), GROUND_M) for t in times])
    assert np.abs(np.diff(path, axis=0)).max() < 1e-3
    assert path[:, :, 2].max() == pytest.approx(LANDING[0, 2] + 0.07 + 0.3 * 0.02, abs=1e-3)


def test_each_leg_has_its_own_progress(swing):
    targets = swing.targets({1: 0.2, 3: 0.95}, GROUND_M)
    np.testing.assert_array_equal(targets[[0, 2]], LIFT[[0, 2]])
    for leg, at in ((1, 0.2), (3, 0.95)):
        alone = swing.targets({leg: at}, GROUND_M)[leg]
        np.testing.assert_array_equal(targets[leg], alone)
        assert (alone != LIFT[leg]).all()


def test_only_lifting_legs_are_latched(swing):
    swing.lift_off([0], LIFT + 1, FOOTHOLD + 1)
    np.testing.assert_array_equal(swing.lift_m[1:], LIFT[1:])
    np.testing.assert_array_equal(swing.foothold_m[0], FOOTHOLD[0] + 1)
