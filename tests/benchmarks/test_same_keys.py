"""The command that reads a policy's own keys by exact attention, quick."""

import json

import numpy as np
import pytest

from experiments.place_memory import same_keys
from training import bc

FEW = ["expert_episodes=4", "episodes=2", "updates=8", "workers=1", "episode_s=2"]
LEARNED = "configs/stepping_stones_memory_learned.yaml"


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "learned"
    assert bc.main(["--config", LEARNED, "--out", str(out), "--set", *FEW, "sequence=8"]) == 0
    return out


def test_both_memories_walk_the_same_terrains(learned, tmp_path, capsys):
    words = [str(learned), "--quick", "--out", str(tmp_path), "--set", "episode_s=2"]
    assert same_keys.main(words) == 0
    facts = json.loads((tmp_path / "same_keys.json").read_text())["results"]
    of_run = facts["runs"]["learned"]
    assert np.shape(of_run["linear"]) == np.shape(of_run["exact"]) == (2, 2)
    assert of_run["linear"] != of_run["exact"]  # another memory does read
    assert facts["reward_ratio"] == pytest.approx(1, abs=0.3)
    assert (tmp_path / "same_keys.png").stat().st_size > 5_000
    assert "linear to exact" in capsys.readouterr().out


def test_parameters_are_the_same(learned):
    (agent,) = same_keys.find_agents([str(learned)], [], None, [])
    with agent.make_env() as env:
        own = agent.make_policy(env)
        exact = same_keys.read_exactly(own, env, "learned")
    assert exact.config.memory == "exact"
    for (key, ours), (_, theirs) in zip(
        own.state_dict().items(), exact.state_dict().items(), strict=True
    ):
        assert ours.equal(theirs), key


def test_another_policy_is_refused(capsys):
    assert same_keys.main(["stepping_stones", "--quick"]) == 2
    assert "must be a policy place_memory with memory linear" in capsys.readouterr().err
