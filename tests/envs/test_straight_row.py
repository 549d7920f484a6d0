"""The straight row with its own settings is what it was before paths turned and cameras moved."""

import json
from pathlib import Path

import numpy as np

from tests.envs.episodes import expert, make

GOLDEN = Path(__file__).parent / "golden" / "straight_row.json"


def test_a_walk_is_what_it_was():
    """Recorded before there were turns, told poses and blackouts. On one kind of machine it is the
    same to the bit; another may round the last one otherwise, which grows to less than 1e-9."""
    golden = json.loads(GOLDEN.read_text())
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
