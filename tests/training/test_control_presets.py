"""Gymnasium's classic control, which has no images: what the presets reach."""

import numpy as np
import pytest

from tests.training.test_es import ROOT
from training import es
from training.analysis.agents import EVALUATION_SEED, find_agents
from training.analysis.evaluator import play
from training.io.metrics import read_metrics


def learned(preset, run, episodes, *changes):
    """The trained policy's mean reward on fresh seeds, and that of the initial centre."""
    config = str(ROOT / "configs" / f"{preset}.yaml")
    assert es.main(["--config", config, "--out", str(run), "--set", *changes]) == 0
    (agent,) = find_agents([str(run)], [], None, [])
    seeds = range(EVALUATION_SEED, EVALUATION_SEED + episodes)
    rewards = [episode.reward for episode in play(agent, seeds)]
    return float(np.mean(rewards)), float(read_metrics(run).columns["center_reward"][0])


def test_a_pole_is_balanced_within_seconds(tmp_path):
    """Of 200 steps; random pushes hold it for 22. Nothing here depends on chance or the machine."""
    quick = "iterations=5", "terrains=1", "env.max_episode_steps=200"
    reward, before = learned("cartpole", tmp_path / "run", 5, *quick)
    assert before < 100
    assert reward > 150


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_pendulum_is_swung_up_and_held(tmp_path):
    """A weak motor must swing it to and fro; untrained it earns about -1,200, and -150 to -250 is
    as good as holding it up from wherever it begins."""
    reward, before = learned("pendulum", tmp_path / "run", 100)
    assert before < -900
    assert reward > -300
