"""The presets with finer cameras can be trained, measured and filmed."""

import pytest

from training import es, flops, rollout
from training.io import checkpoint

ONCE = ["iterations=1", "popsize=4", "terrains=1", "center_terrains=1", "workers=1"]


@pytest.mark.parametrize(
    ("height", "width"), [pytest.param(48, 64, marks=pytest.mark.slow), (96, 128)]
)
def test_it_trains_and_is_filmed(tmp_path, capsys, height, width):
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
