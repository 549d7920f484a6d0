"""State estimation against the truth."""

import numpy as np
import pytest

from envs.stepping_stones.estimator import StateEstimator, level_rotation
from envs.stepping_stones.kinematics import TOE_RADIUS_M, forward
from envs.stepping_stones.locomotion import CONTROL_S
from envs.stepping_stones.robot import POSTURE_RAD
from envs.stepping_stones.sensors import Measurement
from tests.envs.episodes import expert, make

ALL = range(4)
STANDING = forward(POSTURE_RAD)


def reading(euler=(0, 0, 0), rates=(0, 0, 0), joint_speeds=None) -> Measurement:
    speeds = np.zeros((4, 3)) if joint_speeds is None else joint_speeds
    touching = [True] * 4
    return Measurement(
        np.array(euler, float), np.array(rates, float), POSTURE_RAD, speeds, touching
    )


@pytest.mark.parametrize(
    ("noise", "attitude_rad", "velocity_m_s", "rates_rad_s", "height_m"),
    [(0.0, 0.003, 0.06, 0.15, 0.004), (1.0, 0.01, 0.07, 0.20, 0.004)],
)
def test_it_follows_a_walking_robot(noise, attitude_rad, velocity_m_s, rates_rad_s, height_m):
    """RMS errors over 5 s; the raw attitude alone is 0.025 rad off at noise 1."""
    errors = []
    with make(sensor_noise=noise) as env:
        env.reset(seed=1)
        for _ in range(100):
            env.step(expert(env))
            true, estimate = env.unwrapped._state, env.unwrapped._locomotion.estimate
            cos, sin = np.cos(true.euler_rad[2]), np.sin(true.euler_rad[2])
            to_level = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
            errors.append(
                [
                    *(estimate.euler_rad - true.euler_rad),
                    *(estimate.velocity_m_s - to_level @ true.velocity_m_s),
                    *(estimate.rates_rad_s - to_level @ true.rates_rad_s),
                    estimate.height_m - (true.position_m[2] - TOE_RADIUS_M),
                ]
            )
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    limits = [*[attitude_rad] * 3, *[velocity_m_s] * 3, *[rates_rad_s] * 3, height_m]
    assert (rms < limits).all(), rms


def test_attitude_converges_to_the_absolute_angles():
    estimator = StateEstimator(reading(euler=(0.2, -0.2, 0.1)), STANDING, CONTROL_S)
    for _ in range(200):
        estimate = estimator.update(reading(), STANDING, ALL)
    np.testing.assert_allclose(estimate.euler_rad, 0, atol=1e-4)


def test_noise_is_filtered():
    rng = np.random.default_rng(0)
    estimator = StateEstimator(reading(), STANDING, CONTROL_S)
    angles = []
    for _ in range(2000):
        noisy = reading(euler=rng.normal(0, 0.025, 3), rates=rng.normal(0, 0.1, 3))
        angles.append(estimator.update(noisy, STANDING, ALL).euler_rad)
    assert np.std(angles) < 0.3 * 0.025


def test_yaw_follows_a_compass_that_jumps_at_south():
    estimator = StateEstimator(reading(euler=(0, 0, 3.0)), STANDING, CONTROL_S)
    for step in range(200):  # 0.4 radians a second, past pi
        yaw = (3.0 + 0.002 * step + np.pi) % (2 * np.pi) - np.pi
        compass = reading(euler=np.array([0, 0, yaw]), rates=np.array([0, 0, 0.4]))
        told = estimator.update(compass, STANDING, ALL).euler_rad[2]
        assert abs(np.angle(np.exp(1j * (told - yaw)))) < 0.01
    assert yaw < -2.8


def test_velocity_is_that_of_the_body_over_standing_feet():
    """Toes that move backward at 0.3 m/s under the base, less their rolling."""
    speeds = np.linalg.solve(STANDING.jacobian, np.tile([-0.3, 0, 0], (4, 1))[..., None])[..., 0]
    rolling = TOE_RADIUS_M * speeds[:, 1:].sum(1).mean()
    estimator = StateEstimator(reading(), STANDING, CONTROL_S)
    for _ in range(200):
        estimate = estimator.update(reading(joint_speeds=speeds), STANDING, ALL)
    np.testing.assert_allclose(estimate.velocity_m_s, [0.3 + rolling, 0, 0], atol=1e-6)


def test_in_the_air_velocity_and_height_keep_their_values():
    estimator = StateEstimator(reading(), STANDING, CONTROL_S)
    before = estimator.update(reading(), STANDING, ALL)
    speeds = np.ones((4, 3))
    after = estimator.update(reading(joint_speeds=speeds), STANDING, [])
    np.testing.assert_array_equal(after.velocity_m_s, before.velocity_m_s)
    assert after.height_m == before.height_m
    assert before.height_m == pytest.approx(-STANDING.toes_m[:, 2].mean())


def test_level_frame_has_gravity_along_z():
    roll, pitch = 0.2, -0.3
    rotation = level_rotation(roll, pitch)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(
        rotation[2], [-np.sin(pitch), np.cos(pitch) * np.sin(roll), np.cos(pitch) * np.cos(roll)]
    )
    heading = rotation @ [1, 0, 0]
    assert heading[1] == 0
    assert heading[0] > 0
