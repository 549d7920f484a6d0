"""The arms' kinematics against PyBullet, finite differences and themselves."""

from xml.etree import ElementTree

import numpy as np
import pytest

from envs.bimanual_sweep.arm import SIDES, ArmModel
from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.kinematics import SerialArm, rotation_of, rotation_vector
from envs.bimanual_sweep.targets import _POSTURE_RAD
from tests.envs.sweeps import make

MODELS = [ArmModel(BimanualSweepConfig(), side) for side in SIDES]


def postures(count: int, spread_rad: float = 0.6) -> np.ndarray:
    """Joint angles around the arms' start, inside their limits."""
    rng = np.random.default_rng(0)
    return _POSTURE_RAD + rng.uniform(-spread_rad, spread_rad, (count, 6))


def test_forward_is_where_pybullet_puts_the_tool():
    env = make()
    env.reset(seed=0)
    for arm in env._scene.arms:
        for joints in postures(20):
            arm.place(joints)
            position, euler = arm.tool_pose()
            pose, _ = arm.model.kinematics.forward(joints)
            np.testing.assert_allclose(pose[:3, 3], position, atol=1e-5)
            np.testing.assert_allclose(pose[:3, :3], rotation_of(euler), atol=1e-5)
    env.close()


@pytest.mark.parametrize("model", MODELS)
def test_jacobian_is_the_derivative(model):
    step = 1e-6
    for joints in postures(10):
        _, jacobian = model.kinematics.forward(joints)
        for joint in range(6):
            offset = step * np.eye(6)[joint]
            ahead, _ = model.kinematics.forward(joints + offset)
            behind, _ = model.kinematics.forward(joints - offset)
            linear = (ahead[:3, 3] - behind[:3, 3]) / (2 * step)
            turn = rotation_vector(ahead[:3, :3] @ behind[:3, :3].T) / (2 * step)
            np.testing.assert_allclose(jacobian[:, joint], [*linear, *turn], atol=1e-8)


@pytest.mark.parametrize("model", MODELS)
def test_inverse_reaches_what_forward_gives(model):
    arm = model.kinematics
    rng = np.random.default_rng(1)
    for joints in postures(50, 0.3):
        pose, _ = arm.forward(joints)
        start = joints + rng.uniform(-0.1, 0.1, 6)
        found, error = arm.inverse(pose[:3, 3], pose[:3, :3], start, iterations=50)
        assert np.abs(error).max() < 2e-5
        np.testing.assert_allclose(arm.error(pose[:3, 3], pose[:3, :3], found), error)


@pytest.mark.parametrize(
    ("joint", "sentence"),
    [
        ('type="revolute"><axis xyz="1 0 0"/>', "joint j must turn about its z axis"),
        ('type="prismatic"><axis xyz="0 0 1"/>', "joint j must be revolute or fixed, got pris"),
    ],
)
def test_an_arm_of_another_kind_is_an_error(joint, sentence):
    text = (
        f'<robot><joint name="j" {joint}<limit lower="0" upper="1"/>'
        '<parent link="a"/><child link="b"/></joint></robot>'
    )
    with pytest.raises(ValueError, match=sentence):
        SerialArm(ElementTree.fromstring(text), "b", np.eye(4))
