"""Compiled functions do what their source says."""

import json
import os
import subprocess
import sys

import numpy as np

from envs.compiled import compiled
from tests.envs.episodes import expert, make

WALK = """
import json, sys
from tests.envs.test_compiled import walked
json.dump(walked(), sys.stdout)
"""


def walked() -> list[list[float]]:
    """Torques that would come next after each decision of a walk."""
    with make() as env:
        env.reset(seed=4)
        inner, torques = env.unwrapped, []
        for _ in range(12):
            command = inner._course.command(np.asarray(expert(env), float))
            env.step(expert(env))
            torques.append(inner._locomotion.torques(command).ravel().tolist())
    return torques


def test_a_walk_is_that_of_the_source_as_it_is():
    """Python itself adds in the same order; the last digit may be rounded otherwise."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", WALK]
    source = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = np.array(json.loads(source.stdout))
    assert np.abs(expected).max() > 10
    np.testing.assert_allclose(walked(), expected, rtol=0, atol=1e-9)


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same():
    """A function that is in no file has no place to be kept beside."""
    names: dict = {}
    exec("def twice(x):\n    return 2 * x", names)
    twice = compiled(names["twice"])
    assert twice(1.5) == 3.0
    assert twice.signatures  # type: ignore[attr-defined]
