"""The physics client of an environment: when it is freed, calls after that, and images as
tuples."""

import gc
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pybullet
import pytest

import envs
from envs import bullet
from envs.bullet import BulletClient
from envs.stepping_stones import robot
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
def test_what_a_closed_environment_is_asked_for_is_one_sentence(make):
    env = make(render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    env.close()
    for ask in (env.reset, env.render, lambda: env.step(np.zeros(env.action_space.shape))):
        with pytest.raises(
            pybullet.error,
            match=r"^Not connected to physics server: the environment was closed; make another to",
        ):
            ask()


@pytest.fixture
def no_collector():
    """Disable the garbage collector, so that objects are freed by their last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("make", [BulletClient, episodes.make, sweeps.make])
def test_the_last_reference_frees_the_client(make):
    env = make()
    if make is not BulletClient:
        env.reset(seed=0)
        env.step(np.zeros(env.action_space.shape, np.float32))
        env.unwrapped.expert_action()
    number = env.id if make is BulletClient else env.unwrapped._client.id
    assert pybullet.isConnected(number)
    del env
    assert not pybullet.isConnected(number)


def test_a_client_that_was_closed_and_dropped_leaves_the_one_that_has_its_number():
    closed = BulletClient()
    number = closed.id
    closed.close()
    later = BulletClient()
    assert later.id == number
    del closed
    gc.collect()
    assert pybullet.isConnected(number)
    later.close()


@pytest.mark.usefixtures("no_collector")
def test_an_environment_that_fails_to_begin_leaves_no_client(monkeypatch, tmp_path):
    free = BulletClient()
    number = free.id
    free.close()
    monkeypatch.setattr(robot, "_URDF", tmp_path / "missing.urdf")
    with pytest.raises(pybullet.error, match="Cannot load URDF") as kept:
        episodes.make()
    assert not pybullet.isConnected(number)
    assert kept.value is not None  # whose traceback refers to what was made so far


PROGRAM = """
import atexit, os, sys
import gymnasium, envs
left_open, closed_late, in_a_cycle = (
    gymnasium.make("BimanualSweep-v0", images=False, balls=1) for _ in range(3)
)
stones = gymnasium.make("SteppingStones-v0")
for env in (left_open, closed_late, in_a_cycle, stones):
    env.reset(seed=0)
atexit.register(closed_late.close)
in_a_cycle.myself = in_a_cycle
child = os.fork()
if child == 0:
    sys.exit()  # a copy of the process, which frees copies of the environments
assert os.waitpid(child, 0)[1] == 0
stones.step(stones.action_space.sample())
"""


def test_a_process_ends_silently_with_environments_open():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "settings"), [(envs.STEPPING_STONES, {}), (envs.BIMANUAL_SWEEP, {"image_px": 60})]
)
def test_environments_in_threads_do_as_each_alone(name, settings):
    with ThreadPoolExecutor(2) as pool:
        there = list(pool.map(episodes.fresh_fingerprint, [name] * 2, [3, 4], [settings] * 2))
    assert there == [episodes.fresh_fingerprint(name, seed, settings) for seed in (3, 4)]


@pytest.mark.filterwarnings("default")
def test_images_as_tuples_are_the_same_and_warn_once(monkeypatch):
    """A PyBullet built without NumPy returns images as tuples."""

    def pictures():
        env = sweeps.make(images=True, image_px=50, balls=1)
        seen = [env.reset(seed=1)[0]["rgb"], env.step(episodes.expert(env))[0]["rgb"]]
        env.close()
        return seen

    expected = pictures()
    with_arrays = pybullet.getCameraImage

    def with_tuples(*given, **named):
        width, height, colours, depth, mask = with_arrays(*given, **named)
        return width, height, tuple(colours.ravel().tolist()), tuple(depth.ravel().tolist()), mask

    monkeypatch.setattr(pybullet, "getCameraImage", with_tuples)
    monkeypatch.setattr(pybullet, "isNumpyEnabled", lambda: 0)
    monkeypatch.setattr(bullet, "_can_warn", True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = pictures()
    for picture, same in zip(found, expected, strict=True):
        np.testing.assert_array_equal(picture, same)
    slow = [str(w.message) for w in caught if "without NumPy" in str(w.message)]
    assert len(slow) == 1
    assert "pip install --no-cache-dir --no-binary pybullet --no-build-isolation" in slow[0]
