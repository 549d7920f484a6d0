"""The owned physics client: what it does after it is closed."""

import numpy as np
import pybullet
import pytest

from envs.bullet import BulletClient
from tests.envs import episodes, sweeps


def test_a_closed_client_does_nothing_to_the_one_that_gets_its_number():
    closed = BulletClient()
    closed.stepSimulation()
    number = closed.id
    closed.close()
    later = BulletClient()
    assert later.id == number
    with pytest.raises(pybullet.error, match="Not connected to physics server"):
        closed.stepSimulation()
    with pytest.raises(pybullet.error, match="Not connected to physics server"):
        closed.getNumBodies()
    assert closed.JOINT_REVOLUTE == pybullet.JOINT_REVOLUTE
    closed.close()
    assert pybullet.isConnected(number)
    later.close()


@pytest.mark.parametrize("make", [episodes.make, sweeps.make])
def test_a_closed_environment_does_not_move_another(make):
    closed = make().unwrapped
    closed.reset(seed=0)
    closed.step(np.zeros(closed.action_space.shape, np.float32))
    closed.close()
    with make() as other:
        other.reset(seed=0)
        before = state(other)
        with pytest.raises(pybullet.error, match="Not connected to physics server"):
            closed.step(np.zeros(closed.action_space.shape, np.float32))
        assert state(other) == before


def state(env):
    """Where all bodies of its physics are, and how their joints stand."""
    client = env.unwrapped._client
    bodies = [client.getBodyUniqueId(i) for i in range(client.getNumBodies())]
    return [
        (
            client.getBasePositionAndOrientation(body),
            [client.getJointState(body, j)[:2] for j in range(client.getNumJoints(body))],
        )
        for body in bodies
    ]
