"""Rollouts with given settings equal those recorded with earlier implementations."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.envs.episodes import expert, make

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["straight_row", "turning_path"])
def test_a_walk_is_what_it_was(name):
    """The straight row was recorded before there were turns, observed poses and blackouts, the path
    that turns before legs were computed one by one, both before they were compiled. Last bits are
    rounded otherwise since, and on another kind of machine; this grows to less than 1e-9."""
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    with make(**golden["settings"]) as env:
        env.reset(seed=golden["seed"])
        for expected in golden["decisions"]:
            observation, reward, *_, info = env.step(expert(env))
            found = [reward, info["distance_m"]]
            np.testing.assert_allclose(
                found, [expected["reward"], expected["distance_m"]], rtol=0, atol=1e-9
            )
            if "proprio" in expected:
                np.testing.assert_allclose(
                    observation["proprio"], expected["proprio"], rtol=0, atol=1e-6
                )
                mean_m = observation["depth"].mean(axis=(1, 2), dtype=np.float64)
                np.testing.assert_allclose(mean_m, expected["depth_mean"], rtol=0, atol=1e-6)
