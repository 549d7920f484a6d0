"""State estimation against the truth."""

import numpy as np
import pytest

from envs.stepping_stones.kinematics import TOE_RADIUS_M
from tests.envs.episodes import expert, make


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
