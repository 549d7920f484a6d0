"""The study of walks on felt ground: its tuning, and that it resumes."""

import json

import pytest
import torch

from envs.stepping_stones.felt_config import FIRST_M, FeltGroundConfig
from experiments.robots import felt_ground
from policies.felt_ground.memory_config import FeltMemoryConfig


def test_a_risk_is_calibrated_by_what_happened():
    read = torch.tensor([-1.0, -1, -1, -1, 1, 1, 1, 1]).repeat(50)
    truth = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 0]).repeat(50)  # three of four each
    loss, sharpness, prior = felt_ground.calibrated(read, truth)
    assert sharpness == pytest.approx(torch.tensor(3.0).log().item(), rel=0.02)
    assert prior == pytest.approx(0.5, abs=0.01)
    assert loss == pytest.approx(0.5623, abs=0.01)  # the entropy of 1 / 4


def test_scores_are_of_what_was_felt_before_a_question():
    keys, asked = torch.eye(4), torch.eye(4)[[2, 3, 3]]
    values = torch.tensor([1.0, -1, -1, 1]).unsqueeze(-1)
    stream = felt_ground.Stream(keys, values, asked, torch.tensor([0.0, 0, 1]), [3, 3, 4])
    found = felt_ground.scores(FeltMemoryConfig(kind="exact", kappa=50.0), [stream, stream])
    assert found.tolist() == pytest.approx(2 * [-1.0, -1 / 3, 1.0], abs=1e-3)


@pytest.mark.parametrize("world", [*felt_ground.WORLDS, *felt_ground.CURVES])
def test_the_tiles_of_a_world_are_possible_and_its_strip_is_walked_with_care(world):
    felt = FeltGroundConfig(**felt_ground.tiles_of(world))
    strip_m = FIRST_M + felt.strip_tiles * sum(felt.tile_m) / 2
    if world.endswith(felt_ground.UNTOLD):
        assert felt_ground.careful(world) == {"careful_m": None}
    else:
        assert felt_ground.careful(world)["careful_m"] == pytest.approx(strip_m - 0.56)
    assert felt.strip_s == pytest.approx(felt.strip_tiles / 16 * 3.5 - 0.5)
    assert felt_ground.tuned_as(world) in (*felt_ground.WORLDS, "labels change")


def test_finished_walks_are_not_repeated(tmp_path, monkeypatch):
    seeds = range(7, 9)
    done = {"seed": 7, "success": 1, "reward": 123.0}
    file = tmp_path / "walks_vectors_depth_only.jsonl"
    file.write_text(json.dumps(done) + "\n")
    monkeypatch.setitem(felt_ground.SETTINGS, "episode_s", 0.5)
    rows = felt_ground._walked("vectors", "depth only", {}, seeds, tmp_path)
    assert [row["seed"] for row in rows] == [7, 8]
    assert rows[0]["reward"] == 123.0
    assert 0 <= rows[1]["reward"] < 2
    assert len(file.read_text().splitlines()) == 2
    assert felt_ground._walked("vectors", "depth only", {}, seeds, tmp_path) == rows


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--worlds", "vector"], "--worlds vector is unknown; did you mean vectors?"),
        (["--arms", "exakt"], "--arms exakt is unknown; did you mean exact?"),
    ],
)
def test_unknown_names_get_one_sentence(words, message, capsys):
    assert felt_ground.main(words) == 2
    assert message in capsys.readouterr().err
