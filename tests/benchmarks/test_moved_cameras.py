"""Walking with moved cameras: what is measured, kept and gone on with."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.robots import moved_cameras
from training.analysis.agents import find_agents

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "cameras" / "moved.json"
SHIPPED = moved_cameras.SHIPPED[0]


@pytest.fixture(scope="module")
def agent():
    (found,) = find_agents([SHIPPED], [], None, [])
    return found


@pytest.mark.parametrize("pose", moved_cameras.POSES)
def test_every_pose_is_one_of_the_task_and_moves_cameras_alone(agent, pose):
    moved = moved_cameras.posed(agent, pose)
    before = moved_cameras.posed(agent, moved_cameras.AS_IT_WAS)
    changed = {k for k, v in moved.env_settings.items() if v != before.env_settings[k]}
    assert changed == set(moved_cameras.POSES[pose])
    moved.make_env().close()


def test_places_are_shifted(agent):
    moved = moved_cameras.posed(agent, "5 cm forward").env_settings
    assert moved["front_camera"]["position_m"] == [0.247, 0.0, -0.115]
    assert moved["belly_camera"]["position_m"] == [-0.042, 0.0, -0.105]


def test_a_pose_is_kept_and_the_next_start_goes_on(tmp_path, capsys, monkeypatch):
    def short(runs, *_):
        return find_agents(runs, [], None, ["episode_s=3"])

    monkeypatch.setattr(moved_cameras, "find_agents", short)
    file = tmp_path / "moved.json"
    words = ["--terrains", "1", "--seed", "0", "--out", str(file), "--poses", "5 cm up"]
    assert moved_cameras.main(words) == 0
    first = json.loads(file.read_text())["results"][SHIPPED]
    assert set(first) == {moved_cameras.AS_IT_WAS, "5 cm up"}
    assert all(len(one["success"]) == len(one["reward"]) == 1 for one in first.values())
    assert first["5 cm up"]["reward"] != first[moved_cameras.AS_IT_WAS]["reward"]
    capsys.readouterr()
    assert moved_cameras.main(words) == 0
    again = capsys.readouterr()
    assert again.err == ""  # nothing was walked
    assert "| 5 cm up |" in again.out
    assert moved_cameras.main([*words[:2], "--seed", "1", *words[4:]]) == 2
    assert "is of terrains 0 to 0, not of 1 to 1" in capsys.readouterr().err


def test_a_policy_that_cannot_see_refuses(agent):
    narrow = {"front_camera": {"fov_deg": 40.0}, "belly_camera": {"fov_deg": 40.0}}
    moved_cameras.POSES["narrow"] = narrow
    try:
        found = moved_cameras.walk(moved_cameras.posed(agent, "narrow"), [0], 1)
    finally:
        del moved_cameras.POSES["narrow"]
    assert "controller vote needs cameras that see the ground" in found["refused"]
    assert str(agent.checkpoint) not in found["refused"]
    walked = {moved_cameras.AS_IT_WAS: {"success": [1, 1], "reward": [4.0, 4.0]}, "narrow": found}
    assert moved_cameras.rows(walked)[1] == "| narrow | refused | | | |"


def test_losses_are_told_from_chance():
    rng = np.random.default_rng(0)
    own = np.ones(100)
    worse = (rng.random(100) < 0.7).astype(float)
    like = own.copy()
    like[:2] = 0
    results = {
        name: {"success": list(values), "reward": list(4 * values)}
        for name, values in ((moved_cameras.AS_IT_WAS, own), ("worse", worse), ("like", like))
    }
    found = moved_cameras.compared(results)
    assert found["worse"]["p_corrected"] < 0.001
    assert found["worse"]["lost_interval_95"][0] > 0.1
    assert found["like"]["p_corrected"] > 0.05
    low, high = found["like"]["lost_interval_95"]
    assert low < 0 < 0.02 < high


def test_mistakes_are_one_sentence(tmp_path, capsys):
    assert moved_cameras.main(["--poses", "5 cm frward"]) == 2
    assert "did you mean 5 cm forward" in capsys.readouterr().err
    assert moved_cameras.main(["bimanual_sweep_angular_8x2"]) == 2
    assert "was trained in BimanualSweep-v0" in capsys.readouterr().err
    file = tmp_path / "other.json"
    file.write_text("[]")
    assert moved_cameras.main(["--out", str(file)]) == 2
    assert "is not a file of this command" in capsys.readouterr().err


@pytest.mark.skipif(not RECORD.is_file(), reason="docs are not part of a source distribution")
def test_the_document_quotes_the_record():
    """Of sixteen poses none is told from the cameras as they were."""
    facts = json.loads(RECORD.read_text())
    assert len(facts["seeds"]) == 100
    assert (
        moved_cameras.table(facts["results"])
        in (ROOT / "docs" / "results" / "cameras.md").read_text()
    )
    found = moved_cameras.compared(facts["results"][SHIPPED])
    assert len(found) == 16
    assert all(one["p_corrected"] > 0.05 for one in found.values())
