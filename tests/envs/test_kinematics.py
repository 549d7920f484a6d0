"""Closed-form leg kinematics against PyBullet and against finite differences."""

import numpy as np
import pytest

from envs.bullet import BulletClient
from envs.stepping_stones.kinematics import (
    _HIP_M,
    _LATERAL_M,
    _SHANK_M,
    _THIGH_M,
    LEGS,
    forward,
)
from envs.stepping_stones.kinematics import inverse as inverse_of_leg
from envs.stepping_stones.robot import Laikago


def postures(count: int) -> np.ndarray:
    """Joint angles over what walking uses and beyond."""
    rng = np.random.default_rng(0)
    return rng.uniform([-0.5, -0.6, -1.5], [0.5, 1.0, -0.1], (count, 4, 3))


def inverse(toes_m: np.ndarray) -> np.ndarray:
    """Joint angles (4, 3) of all legs."""
    return np.array([inverse_of_leg(leg, toe_m) for leg, toe_m in enumerate(toes_m)])


@pytest.fixture(scope="module")
def robot():
    client = BulletClient()
    yield Laikago(client)
    client.close()


def test_toes_are_where_pybullet_puts_them(robot):
    client, body = robot._client, robot._body
    links = {client.getJointInfo(body, j)[12].decode(): j for j in range(client.getNumJoints(body))}
    client.resetBasePositionAndOrientation(body, [0, 0, 0], [0, 0, 0, 1])
    for joints in postures(20):
        for motor, angle in zip(robot._motors, joints.ravel(), strict=True):
            client.resetJointState(body, motor, angle)
        toes = [
            client.getLinkState(body, links[f"toe{leg}"], computeForwardKinematics=True)[0]
            for leg in LEGS
        ]
        np.testing.assert_allclose(forward(joints).toes_m, toes, atol=1e-5)


def test_inverse_undoes_forward():
    for joints in postures(200):
        np.testing.assert_allclose(inverse(forward(joints).toes_m), joints, atol=1e-12)


def test_jacobian_is_the_derivative():
    step = 1e-6
    for joints in postures(20):
        numeric = np.empty((4, 3, 3))
        for joint in range(3):
            offset = np.zeros(3)
            offset[joint] = step
            ahead, behind = forward(joints + offset).toes_m, forward(joints - offset).toes_m
            numeric[:, :, joint] = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(forward(joints).jacobian, numeric, atol=1e-9)


def test_a_target_out_of_reach_is_approached_along_the_line_to_it():
    """In the leg's plane, where the hip's sideways offset is a constant."""

    def plane(toes):
        forward_m, lateral_m, vertical_m = (toes - _HIP_M).T
        return forward_m + 1j * np.sqrt(lateral_m**2 + vertical_m**2 - np.square(_LATERAL_M))

    toes = forward(np.tile([0.05, 0.07, -0.59], (4, 1))).toes_m
    target = np.add(_HIP_M, 3 * (toes - _HIP_M))
    reached = plane(forward(inverse(target)).toes_m)
    np.testing.assert_allclose(np.angle(reached), np.angle(plane(target)), atol=1e-9)
    np.testing.assert_allclose(np.abs(reached), _THIGH_M + _SHANK_M)
    assert np.isfinite(inverse(np.array(_HIP_M))).all()
