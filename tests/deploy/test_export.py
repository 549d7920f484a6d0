"""The command, and what it writes."""

import ast
import dataclasses
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest

import envs  # noqa: F401 - registers the environments
from deploy import parity
from deploy.cameras import described
from deploy.card import _use
from deploy.export import main
from deploy.facts import _licence
from envs.signals import ACTION
from training.analysis.agents import find_agents


def test_the_command_writes_a_folder_and_compares(tmp_path, capsys):
    out = tmp_path / "walker"
    words = ["stepping_stones_no_attention", "--to", "pt2", "--observations", "4"]
    assert main([*words, "--out", str(out)]) == 0
    assert "4 decisions: the largest difference of an action is" in capsys.readouterr().out
    told = json.loads((out / "contract.json").read_text())
    assert (told["rate_hz"], told["max_age_s"]) == (20.0, 0.05)
    assert [one["name"] for one in told["inputs"]] == ["depth", "proprio"]
    assert told["depth_repair"]["inside_the_model"] is False
    card = (out / "README.md").read_text()
    for part in ("FLOPs of a decision", "`SteppingStones-v0`", "licence", "commit", " ms |"):
        assert part in card, part
    assert (out / "model.pt2").is_file()


def test_other_files_are_not_written_over(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main(["stepping_stones_no_attention", "--out", str(tmp_path)]) == 2
    assert "holds other files: give another directory" in capsys.readouterr().err


@pytest.mark.records
def test_a_stopped_export_is_repeated_and_a_failed_one_leaves_the_former(tmp_path, monkeypatch):
    words = ["stepping_stones_no_attention", "--to", "pt2", "--observations", "1"]
    words += ["--out", str(tmp_path)]
    (tmp_path / ".begun").mkdir()  # as a kill leaves it
    (tmp_path / ".begun" / "model.pt2").touch()
    assert main(words) == 0
    made = {path.name for path in tmp_path.iterdir()} - {".lock"}
    assert made == {"README.md", "contract.json", "model.pt2"}
    before = (tmp_path / "contract.json").read_bytes()
    monkeypatch.setattr(parity, "compare", Mock(side_effect=ValueError("an observation is odd")))
    assert main([*words, "--outside", "clip"]) == 2
    assert (tmp_path / "contract.json").read_bytes() == before
    assert not (tmp_path / ".begun").exists()


def test_the_licence_is_that_of_shipped_weights_alone(tmp_path):
    (path,) = find_agents(["stepping_stones_no_attention"], [], None, [])
    assert _licence(path) == "Apache-2.0, as Foveate"
    copy = shutil.copy(path.checkpoint, tmp_path / "mine.safetensors")
    assert "not stated" in _licence(dataclasses.replace(path, checkpoint=Path(copy)))


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        ("SteppingStones-v0", {}),
        ("SteppingStones-v0", {"path_turn": "left", "camera_pose_told": True}),
        ("BimanualSweep-v0", {"image_px": 50}),
    ],
)
def test_environments_say_what_all_their_numbers_are(env_id, settings):
    with gymnasium.make(env_id, disable_env_checker=True, **settings) as env:
        own = env.unwrapped
        parts = {**env.observation_space.spaces, ACTION: env.action_space}
        for part, space in parts.items():
            told = [one for one in own.signals if one.part == part]
            if told[0].numbers is None:
                assert len(told) == 1
                assert len(told[0].order.split(",")) >= 2
                continue
            places = [i for one in told for i in range(one.first, one.first + one.numbers)]
            assert places == list(range(space.shape[0])), part


def test_cameras_are_described_by_intrinsics_and_pose():
    with gymnasium.make("SteppingStones-v0", disable_env_checker=True) as env:
        geometry = env.unwrapped.geometry
    for index, camera in enumerate(described(geometry)):
        inner, rotation = camera["intrinsics_px"], np.array(camera["rotation"])
        assert np.linalg.det(rotation) == pytest.approx(1)
        row, column = 5, 21
        pixel = [(column - inner["cx"]) / inner["fx"], (row - inner["cy"]) / inner["fy"], 1]
        np.testing.assert_allclose(
            rotation @ pixel, geometry.rays["depth"][index, row, column], atol=1e-6
        )
        np.testing.assert_allclose(camera["position_m"], geometry.positions_m["depth"][index])


def test_the_snippet_of_the_card_is_python_for_any_names():
    names = ["Left Eye", "Left_Eye", "class", "policy", "0", 'a "b"']
    contract = {"model": {"kind": "onnx"}, "inputs": [{"name": name} for name in names]}
    code = _use(contract).removeprefix("```python\n").removesuffix("\n```")
    (given,) = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Dict))
    assert [key.value for key in given.keys] == names
    assert len({value.id for value in given.values}) == len(names)
