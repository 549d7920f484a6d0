"""A PyBullet world cannot be copied: copying raises an error and does not affect other worlds."""

import copy
import multiprocessing
import pickle

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import envs
from tests.envs import episodes

SENTENCE = "can be neither copied nor pickled, as its world is inside PyBullet; make another"
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "old pickle": lambda thing: pickle.dumps(thing, protocol=0),
    "cloudpickle": cloudpickle.dumps,
    "spawn": lambda thing: (
        multiprocessing.get_context("spawn").Process(target=print, args=(thing,)).start()
    ),
}


@pytest.fixture(scope="module")
def stones():
    with gymnasium.make(envs.STEPPING_STONES, render_mode="rgb_array") as env:
        env.reset(seed=0)
        yield env


@pytest.fixture(scope="module")
def sweep():
    with gymnasium.make(envs.BIMANUAL_SWEEP, image_px=50, balls=1) as env:
        env.reset(seed=0)
        yield env


@pytest.mark.parametrize("way", WAYS)
def test_what_holds_a_client_is_neither_copied_nor_pickled(stones, sweep, way):
    here, there = stones.unwrapped, sweep.unwrapped
    holders = [here, here._client, here._robot, here._scenery]
    holders += [there, there._camera, there._scene, there._scene.arms[0]]
    for holder in holders:
        name = type(holder).__name__
        with pytest.raises(TypeError, match=f"^{name} {SENTENCE}") as error:
            WAYS[way](holder)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"copy"}))
def test_wrappers_are_copied_no_deeper_than_their_environment(stones, sweep, way):
    """copy.copy of a wrapper makes another wrapper of the same environment, as of any object."""
    for env in (stones, sweep, gymnasium.wrappers.TimeLimit(stones, 5), {"env": [sweep]}):
        with pytest.raises(TypeError, match=SENTENCE):
            WAYS[way](env)


def test_a_refused_copy_leaves_the_original_as_it_was(stones):
    stones.reset(seed=0)
    stones.step(np.zeros(9, np.float32))
    expected = [stones.step(np.zeros(9, np.float32))[0]["depth"] for _ in range(3)]
    stones.reset(seed=0)
    stones.step(np.zeros(9, np.float32))
    with pytest.raises(TypeError, match=SENTENCE):
        copy.deepcopy(stones)
    for depth in expected:
        np.testing.assert_array_equal(stones.step(np.zeros(9, np.float32))[0]["depth"], depth)


def test_what_makes_another_one_is_copied_and_pickled(stones):
    spec = pickle.loads(pickle.dumps(copy.deepcopy(stones.spec)))
    config = copy.deepcopy(stones.unwrapped.config)
    assert pickle.loads(pickle.dumps(config)) == config
    with gymnasium.make(spec) as another:
        assert another.unwrapped.config == config
        assert episodes.fingerprint(another, 3, steps=3) == episodes.fingerprint(stones, 3, steps=3)


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        (SyncVectorEnv, envs.STEPPING_STONES, {}),
        (AsyncVectorEnv, envs.BIMANUAL_SWEEP, {"images": False}),
    ],
)
def test_vector_environments_step_as_one_alone_does(kind, name, settings):
    def one():
        return gymnasium.make(name, **settings)

    part = "proprio" if name == envs.STEPPING_STONES else "pose"
    with one() as alone:
        ways = []
        for seed in (4, 5):
            still = np.zeros(alone.action_space.shape, np.float32)
            start = alone.reset(seed=seed)[0][part]
            ways.append([start, *(alone.step(still)[0][part] for _ in range(3))])
    several = kind([one, one])
    seen = [several.reset(seed=[4, 5])[0][part]]
    for _ in range(3):
        action = np.zeros(several.action_space.shape, np.float32)
        seen.append(several.step(action)[0][part])
    several.close()
    np.testing.assert_array_equal(np.stack(seen, 1), np.array(ways))
