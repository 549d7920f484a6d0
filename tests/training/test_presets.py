"""Presets: what those of classic control reach, those with finer cameras, a study's variants."""

import numpy as np
import pytest

from tests.training.test_es import ROOT
from training import es, flops, rollout
from training.analysis.agents import find_agents
from training.analysis.arguments import EVALUATION_SEED
from training.analysis.evaluator import play
from training.io import checkpoint
from training.io.metrics import read_metrics

ONCE = ["iterations=1", "popsize=4", "terrains=1", "center_terrains=1", "workers=1"]


def learned(preset, run, episodes, *changes):
    """The trained policy's mean reward on fresh seeds, and that of the initial centre."""
    config = str(ROOT / "configs" / f"{preset}.yaml")
    assert es.main(["--config", config, "--out", str(run), "--set", "seed=0", *changes]) == 0
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
    """A weak motor must swing it to and fro; untrained it earns about -1,200, and one that is not
    swung up -700 to -900. Last bits of the machine decide how soon: -150 to -450 in 70 updates."""
    reward, before = learned("pendulum", tmp_path / "run", 100)
    assert before < -900
    assert reward > -500


@pytest.mark.slow
@pytest.mark.parametrize(("height", "width"), [(48, 64), (96, 128)])
def test_it_trains_and_is_recorded_on_video(tmp_path, capsys, height, width):
    preset, run = f"configs/stepping_stones_{height}x{width}.yaml", tmp_path / "run"
    assert es.main(["--config", preset, "--out", str(run), "--set", *ONCE, "episode_s=0.2"]) == 0
    policy, config = checkpoint.load_policy(checkpoint.resolve(run))
    assert config["policy"]["patch"] == [1, 1]
    assert sum(parameter.numel() for parameter in policy.parameters()) < 200
    film = tmp_path / "film.png"
    words = [str(run), "--video", str(film), "--still-s", "0.1", "--set", "episode_s=0.2"]
    assert rollout.main(words) == 0
    assert film.stat().st_size > 1000
    assert flops.main([str(run)]) == 0
    assert "FLOPs" in capsys.readouterr().out
